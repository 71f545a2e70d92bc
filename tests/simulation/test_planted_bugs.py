"""Each planted bug is found within a bounded number of seeds, and its script is made small."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.bugs import BUGS, Bug, window_bound_is_exclusive
from tests.simulation.checks import Failed, verdict
from tests.simulation.generate import script
from tests.simulation.script import Script
from tests.simulation.shrink import shrink

ENOUGH = 700


def hunt(bug: Bug, by: str | None = None) -> tuple[int, Script, Failed]:
    for seed in range(1, ENOUGH + 1):
        made = script(seed)
        with bug.plant():
            failed = verdict(made)
        if failed is None or failed.check == "crash":  # seen by a rule it breaks, not by accident
            continue
        if by in (None, failed.check):
            return seed, made, failed
    pytest.fail(f"{bug.name} was not found with {ENOUGH} seeds")


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_planted_bug_is_found(bug: Bug, record_property: Callable[[str, object], None]) -> None:
    seed, made, failed = hunt(bug)
    print(f"{bug.name}: found after {seed} seeds by the check {failed.check!r}\n{failed}")
    record_property("seeds", seed)
    record_property("found_by", failed.check)
    assert verdict(made) is None  # without the bug all is well


def test_shrinking_leaves_what_is_needed_and_no_more() -> None:
    seed, made, failed = hunt(Bug("", window_bound_is_exclusive), by="results")
    with window_bound_is_exclusive():
        smallest, still = shrink(made)
    assert still.check == failed.check
    assert verdict(smallest) is None
    assert len(smallest.operations) <= 2
    assert smallest.row_count == len(smallest.inputs)
    print(f"seed {seed}: {made.row_count} rows became\n{smallest.source()}")


def test_a_script_that_does_not_fail_is_not_shrunk() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(script(1))
