"""A peer without an environment has failed, by name; with one, a small job gives the batch answer."""

import pytest

from lab.contenders.protocol import Answer, Check, Failed, Measured, Work
from lab.peers import environments, works
from lab.peers.environments import FLINK, Peer, python_of
from lab.peers.flink import run_flink


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_what_cannot_be_installed_is_named_and_not_tried_twice(here, monkeypatch):
    ran = []
    monkeypatch.setattr(environments, "_ran", lambda command: ran.append(command) or "no such package")
    said = []
    nothing = Peer("nothing", "no-such-package", "1.0")
    found = [python_of(nothing, said.append) for _ in range(2)]
    assert found == [Failed("nothing", "no-such-package 1.0 cannot be installed: no such package")] * 2
    assert (len(ran), len(said)) == (1, 1)


def test_a_ready_environment_is_used(here):
    FLINK.folder.mkdir(parents=True)
    (FLINK.folder / ".ready").touch()
    assert python_of(FLINK, lambda _: pytest.fail("made again")) == FLINK.python


def test_flink_without_an_environment(tmp_path):
    work = Work("two-way", "", tmp_path, {}, 0, Answer(0, 0, 0))
    found = run_flink(work, "two-way", "heap", Check(("va",), "k"), Failed("flink", "cannot be installed"))
    assert found == Failed("flink-heap", "cannot be installed")


def test_a_scan_counts_what_is_in_the_files(tmp_path):
    made = works.three_way(tmp_path, 1)
    scan = works.scan_of(made.work)
    assert scan.work.answer.rows == made.work.rows == 450_000
    assert made.work.answer.rows == 797_824


@pytest.mark.slow
def test_flink_gives_the_batch_answer(tmp_path):
    made = works.interval(tmp_path, 1)
    found = run_flink(made.work, "interval", "heap", made.check, environments.flink(print))
    assert isinstance(found, Measured), found
    assert found.answer == made.work.answer
