"""The regression guard's comparison: a slowdown is named, noise is not."""

from __future__ import annotations

import pytest

from lab.bench.guard import Ratio, compared

THEN = (2.9, 3.0, 3.2)


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        ((2.2, 2.4, 2.7), "slower"),  # 20 % less, and no round reaches the worst one then
        ((2.2, 2.4, 3.0), "as before"),  # one round does: noise
        ((2.7, 2.75, 2.8), "as before"),  # below every round then, but by less than 15 %
        ((3.3, 3.4, 3.4), "as before"),
        ((3.6, 3.9, 4.0), "faster"),
    ],
)
def test_slower_is_more_than_the_margin_and_beyond_the_spread_of_both(now, verdict):
    [line] = compared({"join": Ratio("a join", now)}, {"join": Ratio("a join", THEN)})
    assert line.verdict == verdict


def test_every_number_of_either_run_is_listed():
    one = Ratio("a join", THEN)
    lines = compared({"join": one, "added": one}, {"join": one, "removed": one})
    assert [(line.name, line.verdict, line.change) for line in lines] == [
        ("join", "as before", "+0 %"),
        ("added", "new", ""),
        ("removed", "gone", ""),
    ]
