"""Spark Connect: the same user code on a classic session and against a real server gives the same."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamjoin.spark.versions import IS_BEFORE_4_1
from tests.spark.connect_server import connect_server
from tests.spark.streams import write_batches

START = datetime(2024, 1, 1, tzinfo=UTC)


def shop(folder: Path) -> dict[str, Any]:
    """The inputs as files, and what the batch joins of them are."""
    orders = [(i, i % 3, START + timedelta(seconds=i)) for i in range(6)]
    lines = [(i % 6, f"item{i}", i >= 12) for i in range(18)]  # the last of each order closes it
    lines.append((5, "NONE", False))
    lines.sort(key=lambda line: line[2])
    times = pa.timestamp("us", tz="UTC")
    order_table = pa.table(
        {
            "id": [o[0] for o in orders],
            "customer": [o[1] for o in orders],
            "t": pa.array([o[2] for o in orders], times),
        }
    )
    line_table = pa.table(
        dict(zip(["order_id", "item", "is_last"], map(list, zip(*lines, strict=True)), strict=True))
    )
    write_batches(folder / "orders", [order_table.slice(0, 4), order_table.slice(4)])
    write_batches(folder / "lines", [line_table.slice(0, 7), line_table.slice(7)])
    write_batches(folder / "customers", [pa.table({"id": [0, 1], "city": ["Rome", "Oslo"]})])
    data = [line for line in lines if not line[2] and line[1] != "NONE"]  # a marked row is no result
    joined = sorted([o[0], o[1], line[1]] for o in orders for line in data if o[0] == line[0])
    cities = {0: "Rome", 1: "Oslo"}
    return {
        "joined": joined,
        "enriched": sorted([o[1], o[0], cities[o[1]]] for o in orders if o[1] in cities),
    }


def run_child(folder: Path, *args: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.spark.connect_child", str(folder), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["rows"] == found["direct"] == expected["joined"]
    assert found["enriched_path"] == found["enriched_frame"] == expected["enriched"]
    assert found["results"] >= len(expected["joined"])
    assert (found["state"], found["punctuations"]) == (0, 6)
    assert found["watermark"] == ["t", 60_000_000]
    assert "shop" in found["explained"]
    assert "outputMode('append') only" in found["refused"]


@pytest.mark.spark
@pytest.mark.systems
def test_the_same_code_on_classic(tmp_path: Path) -> None:
    check_run = shop(tmp_path)
    check(run_child(tmp_path), check_run)


@pytest.mark.spark
@pytest.mark.systems
@pytest.mark.skipif(IS_BEFORE_4_1, reason="Connect has Python's transformWithState from Spark 4.1 on")
def test_the_same_code_on_a_connect_server(tmp_path: Path) -> None:
    expected = shop(tmp_path)
    with connect_server(tmp_path / "server") as url:
        check(run_child(tmp_path, url), expected)
