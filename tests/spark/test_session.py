"""Sessions of a user: any setting may be as it is, unless an answer would be wrong by it."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

import streamjoin as sj
from streamjoin.spark import session
from streamjoin.spark.session import ROCKSDB, check_connect, check_session, default_buckets, setting

PROVIDER = "spark.sql.streaming.stateStore.providerClass"


class Settings(dict[str, str]):
    """A session's settings; those of `locked` cannot be set, and what is not there cannot be read."""

    locked: tuple[str, ...] = ()

    def get(self, name: str, *default: Any) -> Any:
        if name not in self and not default:
            raise RuntimeError(f"{name} is not available here")
        return super().get(name, *default)

    def set(self, name: str, value: str) -> None:
        if name in self.locked:
            raise RuntimeError(f"{name} cannot be set here")
        self[name] = value


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_said", set())
    monkeypatch.setattr(session, "check_workers", lambda spark: None)  # these sessions have none


def test_a_rocksdb_of_a_platform_is_accepted_and_left_as_it_is() -> None:
    spark = SimpleNamespace(conf=Settings({PROVIDER: "com.example.state.RocksDBStateStoreProvider"}))
    check_session(spark)
    assert spark.conf[PROVIDER] == "com.example.state.RocksDBStateStoreProvider"


def test_another_state_store_is_replaced_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    spark = SimpleNamespace(conf=Settings({PROVIDER: "org.example.Other"}))
    check_session(spark)
    assert spark.conf[PROVIDER] == ROCKSDB
    spark.conf[PROVIDER] = "org.example.Other"
    check_session(spark)
    said = [one.message for one in caplog.records if "org.example.Other" in one.message]
    assert len(said) == 1


def test_one_that_cannot_be_replaced_is_refused_by_name() -> None:
    spark = SimpleNamespace(conf=Settings({PROVIDER: "org.example.Other"}))
    spark.conf.locked = (PROVIDER,)
    with pytest.raises(sj.InvalidJoin, match=f"org.example.Other, which .* set {PROVIDER} to {ROCKSDB}"):
        check_session(spark)


def test_settings_that_cannot_be_read_or_set_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    spark = SimpleNamespace(conf=Settings())
    with caplog.at_level(logging.INFO, "streamjoin"):
        check_session(spark)
        check_session(spark)
    faster = [one.message for one in caplog.records if one.message.startswith("joins are faster")]
    assert len(faster) == 1
    assert "spark.python.daemon.module=streamjoin.spark.daemon" in faster[0]
    assert setting(spark, "spark.sql.session.timeZone", "UTC") == "UTC"


@pytest.mark.parametrize(("partitions", "buckets"), [("7", 7), ("auto", 200), (None, 200)])
def test_buckets_whatever_the_partitions_are(partitions: str | None, buckets: int) -> None:
    name = "spark.sql.shuffle.partitions"
    conf = Settings({} if partitions is None else {name: partitions})
    assert default_buckets(SimpleNamespace(conf=conf)) == buckets


def remote_frame(version: str) -> Any:
    made = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    made.sparkSession = SimpleNamespace(version=version)
    return made


def test_connect_to_a_server_before_4_1_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "IS_BEFORE_4_1", False)
    with pytest.raises(
        sj.InvalidJoin, match=r"stream 'c': a join over Spark Connect needs Spark 4\.1 or later"
    ):
        check_connect(remote_frame("4.0.1"), "c")
    check_connect(remote_frame("4.1.1"), "c")
    monkeypatch.setattr(session, "IS_BEFORE_4_1", True)
    with pytest.raises(sj.InvalidJoin, match=r"needs Spark 4\.1 or later"):
        check_connect(remote_frame("4.2.0"), "c")
