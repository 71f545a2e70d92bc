"""What a cache in front of MESHJOIN can give at most: 1 / (1 − h) times its service rate, at hit share h.

Tuples that miss go through MESHJOIN, which serves them no faster than MESHJOIN with all the memory serves its
tuples; hits are counted as free. So the rate is at most that of MESHJOIN by the share of misses. Worked
number: the paper's 39 % of hits at 1 % of memory (figure 5f) give at most 1.64 times, and it says 7 (5a).

`most_hits` bounds h itself for the paper's synthetic data (section 4.1): Zipf 1 over as many values as R has
tuples, the values of R drawn with repetition, so a value has Poisson(1) tuples, e^-1 of them none. The best
cache has all values without tuples, for nothing, and of the others those with the greatest probability by
tuple: with m tuples the c / m most frequent, where c · (1 − e^-1) tuples fill the memory. No byte is kept for
waiting tuples, the disk buffer or the queue. Worked number: R of 100 million, 1 %: h = 0.85,
at most 6.7 times.
"""

from __future__ import annotations

from math import exp, factorial, log

_EULER = 0.5772156649
_MOST_TUPLES = 20  # of a value: Poisson(1) has none above that


def ceiling(hits: float) -> float:
    """How many times MESHJOIN's rate that hit share allows.

    >>> round(ceiling(0.39), 2)
    1.64
    """
    return 1 / (1 - hits)


def most_hits(rows: int, memory: float) -> float:
    """The greatest hit share with a share of R as memory, skew 1.

    >>> round(most_hits(100_000_000, 0.01), 2), round(most_hits(1_000_000, 0.1), 2)
    (0.85, 0.9)
    """
    none = exp(-1)
    reach = memory * rows / (1 - none)
    shares = (
        none / factorial(m) * _harmonic(min(reach / m, rows)) / _harmonic(rows)
        for m in range(1, _MOST_TUPLES + 1)
    )
    return none + sum(shares)


def impossible(rows: int, memory: float, wanted: float) -> str | None:
    """The calculation, where no cache in front of MESHJOIN gives so many times its rate."""
    hits = most_hits(rows, memory)
    if ceiling(hits) >= wanted:
        return None
    return (
        f"with {memory:.0%} of {rows:,} tuples as memory, all of it the best cache, at most {hits:.1%} of "
        f"the tuples hit (Zipf 1, a value has Poisson(1) tuples); the others are served no faster than by "
        f"MESHJOIN, so at most 1 / (1 − {hits:.3f}) = {ceiling(hits):.2f} times, not {wanted:g}"
    )


def _harmonic(n: float) -> float:
    return log(n) + _EULER + 1 / (2 * n) if n >= 1 else n
