"""A stream enriched with a table, killed at random moments while a new version comes: each row is
answered once, as by the batch join with the version that it tells.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.streams import write_batches
from tests.spark.test_enrich import batch_join, customers, orders
from tests.spark.test_restart import content, kill_until_done

pytestmark = pytest.mark.spark


@pytest.mark.systems
@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_kills_lose_and_double_no_answer(tmp_path: Path, seed: int) -> None:
    tables = [orders(200 * i, 200, seed + i) for i in range(8)]
    versions = [customers(seed), customers(seed + 100)]
    write_batches(tmp_path / "orders", tables)
    write_batches(tmp_path / "table", versions[:1])
    write_batches(tmp_path / "newer", versions[1:])
    log = kill_until_done(tmp_path, 4, seed, after=3)
    print(log)
    answers = content(tmp_path, "rows")
    told: dict[int, str] = {}
    for row in answers:
        told.setdefault(row[1], row[3])
        assert told[row[1]] == row[3], f"an order was joined with two versions: {row}"
    # A driver killed while it stages the newer table stages it again, under the next number.
    newer = {one: not version.startswith("0001") for one, version in told.items()}
    assert set(newer.values()) == {False, True}, f"seed {seed}: {log}: {set(told.values())}"
    expected: Counter[tuple[Any, ...]] = Counter()
    for is_newer, version in zip((False, True), versions, strict=True):
        mine = [table.filter([newer[one] is is_newer for one in table["id"].to_pylist()]) for table in tables]
        expected += batch_join(mine, version, left=True)
    assert Counter(row[:3] for row in answers.elements()) == expected, f"seed {seed}: {log}"
