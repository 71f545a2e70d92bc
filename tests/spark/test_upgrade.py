"""Upgrades: a checkpoint goes on with the next version of Spark, and nothing is lost or said twice.

`STREAMJOIN_MATRIX` names a folder with an environment for each version, `<version>/bin/python`; `make
test-matrix` makes it.
"""

import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.streams import write_batches

pytestmark = [pytest.mark.spark, pytest.mark.systems]


def environments() -> dict[str, Path]:
    """The Python of each version from 4.1 on: Spark itself does not promise to read state of 4.0."""
    folder = Path(os.environ.get("STREAMJOIN_MATRIX") or ".matrix")
    found = {
        home.name: home / "bin" / "python"
        for home in folder.glob("[0-9]*")
        if (home / "bin" / "python").exists()
    }
    ordered = sorted(found, key=lambda name: [int(part) for part in name.split(".")])
    return {name: found[name] for name in ordered if name.split(".")[:2] != ["4", "0"]}


def run_on(python: Path, folder: Path) -> str:
    paths = {name: str(python.absolute()) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    command = [str(python.absolute()), "-m", "tests.spark.upgrade_child", str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, env={**os.environ, **paths}, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout.split()[-1]


def add(folder: Path, number: int, table: pa.Table) -> None:
    """One more file, in time after those before."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:05}.parquet"
    pq.write_table(table, path)
    os.utime(path, (1_700_000_000 + number,) * 2)


def found_in(folder: Path) -> list[list[object]]:
    tables = [pq.read_table(path) for path in sorted(folder.glob("*/*.parquet"))]
    return sorted([*row.values()] for table in tables for row in table.to_pylist())


@pytest.mark.skipif(
    len(environments()) < 2, reason="needs environments of two versions; see make test-matrix"
)
def test_a_checkpoint_goes_on_with_the_next_version(tmp_path: Path) -> None:
    write_batches(tmp_path / "cities", [pa.table({"id": [0, 1], "city": ["Rome", "Oslo"]})])
    versions = environments()
    orders: dict[int, int] = {}
    closed: set[int] = set()
    expected = []
    for leg, (version, python) in enumerate(versions.items()):
        new = {10 * leg + i: i % 3 for i in range(4)}
        orders |= new
        add(tmp_path / "orders", leg, pa.table({"id": list(new), "customer": list(new.values())}))
        # a line for every open order: those of earlier legs are joined with state of an older Spark
        ids = [order for order in orders if order not in closed]
        items, last = [f"{version} {order}" for order in ids], [order % 10 == 3 for order in ids]
        add(tmp_path / "lines", leg, pa.table({"order_id": ids, "item": items, "is_last": last}))
        ended = {order for order, is_last in zip(ids, last, strict=True) if is_last}
        pairs = zip(ids, items, strict=True)
        expected += [[order, orders[order], item] for order, item in pairs if order not in ended]
        closed |= ended
        assert run_on(python, tmp_path) == version
    assert found_in(tmp_path / "joined") == sorted(expected)
    cities = {0: "Rome", 1: "Oslo"}
    enriched = sorted(
        [customer, order, cities[customer]] for order, customer in orders.items() if customer in cities
    )
    assert found_in(tmp_path / "enriched") == enriched
