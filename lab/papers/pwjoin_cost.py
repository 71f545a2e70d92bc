"""Equation 1 of the PWJoin paper: tuples held, predicted and measured; and its best case (figure 7).

    |S_b| at T = λ_b · T_b · (1 − λ_pa · T / NK_b)

λ_b: tuples of b a second; T_b: window of b in seconds; λ_pa: punctuations of a a second; NK_b: distinct keys
of b so far. Worked number: 1,000 tuples a second, a window of 5 s, 2 punctuations a second, 160 keys: after
20 s 5,000 · (1 − 40 / 160) = 3,750. It assumes that any tuple of b has any key, ended by a or not, equally
likely; that is a stream b of uniform keys. Cost: a setting of 40,000 tuples takes about 2 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow.compute as pc

from lab.experiment import Claim, Op, Statement
from lab.generators.patterns import StreamPattern, clustered, punctuated, uniform, unique
from lab.papers.pattern_runs import PATTERN, Batch, StreamPair, answer, cut, local, observe
from lab.report.figures import Context, Figure, Table
from streamjoin.plot import Chart

SEED = 6
WINDOW_S, RATE, SECONDS = 5, 1_000, 36  # tuples a second of each stream
_CLOSE = 0.05  # of a window's tuples: what "computes" is taken for


def predicted(rate: float, window_s: float, punctuations: float, at_s: float, keys: float) -> float:
    """Equation 1.

    >>> predicted(1000, 5, 2, 20, 160)
    3750.0
    """
    return rate * window_s * (1 - punctuations * at_s / keys)


@dataclass(frozen=True)
class CostSetting:
    """Stream a ends a key after so many tuples; b has any of so many keys."""

    segment: int
    keys: int

    @property
    def punctuations(self) -> float:
        return RATE / self.segment

    @property
    def label(self) -> str:
        return f"{self.punctuations:.1f} a second, {self.keys} keys"

    def streams(self) -> StreamPair:
        gap = f"{1000 / RATE:g} milliseconds"
        a = punctuated("asc", self.segment, 40, gap=gap).table(rows=RATE * SECONDS, seed=SEED)
        return cut(a, uniform(self.keys, rows=RATE * SECONDS, seed=SEED + 1, gap=gap), 0.5)


BASE = CostSetting(500, 160)
RATES = (CostSetting(1_000, 160), BASE, CostSetting(300, 160))  # ever more punctuations a second
KEYS = (CostSetting(500, 320), BASE, CostSetting(500, 100))  # ever fewer keys


@dataclass(frozen=True)
class MeasuredCost:
    """Tuples of b held at moments between the first window and the end, and what equation 1 says."""

    seconds: Sequence[float]
    held: Sequence[int]
    said: Sequence[float]
    window_tuples: float  # what b would hold without punctuations

    @property
    def off(self) -> float:
        """The largest difference, as a share of a window's tuples."""
        return max(abs(a - b) for a, b in zip(self.held, self.said, strict=True)) / self.window_tuples


def measure(data: StreamPair, rate: float, punctuations: float) -> MeasuredCost:
    """A run of PWJoin beside equation 1, with the keys that b has had so far."""
    held = observe(local("pwjoin", WINDOW_S, WINDOW_S), data.batches, answer(data, WINDOW_S, WINDOW_S)).held[
        "b"
    ]
    keys = _keys_so_far(data)
    end = data.seconds[-1] * 0.95  # near the end one stream may be over before the other
    places = [i for i, at in enumerate(data.seconds) if WINDOW_S <= at <= end]
    said = [predicted(rate, WINDOW_S, punctuations, data.seconds[i], float(keys[i])) for i in places]
    moments = [data.seconds[i] for i in places]
    return MeasuredCost(moments, [held[i] for i in places], said, rate * WINDOW_S)


def _keys_so_far(data: StreamPair) -> list[int]:
    """How many distinct keys b has had at the end of each batch."""
    rows = data.whole["b"].filter(pc.invert(data.whole["b"]["is_end"]))
    _, first = np.unique(rows["k"].to_numpy(), return_index=True)
    ends = np.cumsum([len(batch["b"]) for batch in data.batches])
    return [int(keys) for keys in np.searchsorted(np.sort(rows["seq"].to_numpy()[first]), ends)]


def _says(name: str, text: str, op: Op, target: float, unit: str = "times") -> Statement:
    return Statement(f"pwjoin-eq1-{name}", text, "PWJoin, equation 1", op, target, unit)


def cost_model(context: Context) -> Sequence[Figure]:
    """Equation 1 for several rates and numbers of keys, and the best case."""
    found: dict[CostSetting, MeasuredCost] = {}
    for setting in dict.fromkeys((*RATES, *KEYS)):
        context.step(f"equation 1, {setting.label}")
        found[setting] = measure(setting.streams(), RATE, setting.punctuations)
    context.step("equation 1, both streams punctuated")
    tables = [replace(PATTERN, gap="1 millisecond").table(rows=RATE * SECONDS, seed=SEED + i) for i in (2, 3)]
    general = measure(cut(tables[0], tables[1], 0.5), RATE, RATE / (PATTERN.size or 1))
    return [_equation(found, general), _best_case(context)]


def _equation(found: Mapping[CostSetting, MeasuredCost], general: MeasuredCost) -> Figure:
    worst = max(found.values(), key=lambda one: one.off)
    off = "tuples of B held, measured less predicted, the largest difference over time and settings"
    more = "tuples held, mean: at a higher rate of punctuations by the next lower one, worst"
    fewer = "tuples held, mean: with fewer distinct keys by the next larger number, worst"
    later = "tuples held at the end by those after the first window, worst of the settings"
    unit = "of a window's tuples"
    claims: list[Claim] = [
        _says("fits", f"{off}, keys of B uniform", "<=", _CLOSE, unit).measured([worst.off]),
        _says("fits-general", f"{off}, both streams punct-asc-100-40", "<=", _CLOSE, unit).measured(
            [general.off]
        ),
        _says("rate", more, "<", 1).measured([_largest_step(found, RATES)]),
        _says("keys", fewer, "<", 1).measured([_largest_step(found, KEYS)]),
        _says("time", later, "<", 1).measured([max(one.held[-1] / one.held[0] for one in found.values())]),
    ]
    claims[1] = claims[1] if claims[1].holds else replace(claims[1], why=_WHY_GENERAL)
    rows = [(one.label, round(at.said[-1]), at.held[-1], round(at.off, 3)) for one, at in found.items()]
    return Figure(
        "pwjoin-eq1",
        "PWJoin, equation 1: tuples held, predicted and measured",
        f"A: {RATE:,} tuples a second, and 1 to 3.3 times a second a punctuation that ends a key. B: "
        f"{RATE:,} tuples a second, each with any of 100 to 320 keys. Windows of {WINDOW_S} s, {SECONDS} "
        "seconds. Equation 1 says that B holds (tuples a second) · window · (1 − punctuations of A so far / "
        "keys of B so far). Also with both streams punct-asc-100-40 (figure 8).",
        "The equation computes the number of tuples in the B state at time T. At a higher punctuation rate, "
        "or with fewer distinct values, it uses less memory; and as more punctuations stream in over time.",
        claims,
        [
            _chart(
                "Tuples of B held, by how many punctuations A has a second",
                found,
                {f"{one.punctuations:.1f}/s": one for one in RATES},
            ),
            _chart(
                "Tuples of B held, by how many distinct keys B has",
                found,
                {f"{one.keys} keys": one for one in KEYS},
            ),
        ],
        Table(("setting", "predicted at the end", "measured", "largest difference, of a window"), rows),
        (f'"Computes" is taken as: within {_CLOSE:.0%} of what a window holds.',),
        {one.label: {"seconds": at.seconds, "held": at.held, "said": at.said} for one, at in found.items()},
    )


_WHY_GENERAL = (
    "the equation lets A end any key that B's tuples have with the same likelihood; in punct-asc-100-40 B "
    "brings no more tuples of keys that it has ended itself, at the same pace as A, so its tuples are mostly "
    "of keys that A has not ended yet"
)


def _largest_step(found: Mapping[CostSetting, MeasuredCost], settings: Sequence[CostSetting]) -> float:
    means = [float(np.mean(found[one].held)) for one in settings]
    return max(after / before for before, after in pairwise(means))


def _chart(title: str, found: Mapping[CostSetting, MeasuredCost], names: Mapping[str, CostSetting]) -> Chart:
    lines: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    for name, one in names.items():
        lines[f"{name}, measured"] = (found[one].seconds, found[one].held)
        lines[f"{name}, equation 1"] = (found[one].seconds, found[one].said)
    return Chart(title, "seconds of the streams", "tuples held", lines)


# The best case, figure 7

_HOUR_S = 3600


def synchronised(whole: Batch) -> Iterator[Batch]:
    """A cluster of a and its punctuation, then the cluster of b and its own; a batch for each row."""
    ends = {name: np.flatnonzero(table["is_end"].to_numpy()) + 1 for name, table in whole.items()}
    starts = dict.fromkeys(whole, 0)
    for cluster in range(len(ends["a"])):
        for name, table in whole.items():
            end = int(ends[name][cluster])
            yield from ({name: table.slice(row, 1)} for row in range(starts[name], end))
            starts[name] = end


def best_case(pattern: StreamPattern, rows: int) -> tuple[Mapping[str, Sequence[int]], int]:
    """Tuples held after each row of both streams, and the largest cluster of a."""
    a, b = (pattern.table(rows=rows, seed=SEED + i) for i in range(2))
    data = cut(a, b, _HOUR_S)
    run = local("pwjoin", _HOUR_S, _HOUR_S)
    held = observe(run, synchronised(data.whole), answer(data, _HOUR_S, _HOUR_S)).held
    tuples = data.whole["a"].filter(pc.invert(data.whole["a"]["is_end"]))
    return held, int(np.unique(tuples["k"].to_numpy(), return_counts=True)[1].max())


def _best_case(context: Context) -> Figure:
    rows = 400 if context.quick else 1_000
    context.step("synchronised clusters")
    held, largest = best_case(clustered("asc", 20), rows)
    context.step("synchronised unique keys")
    alone, _ = best_case(unique("asc"), rows)
    both = [a + b for a, b in zip(alone["a"], alone["b"], strict=True)]

    def says(name: str, text: str, op: Op, target: float, unit: str) -> Statement:
        return Statement(f"pwjoin-7-{name}", text, "PWJoin, figure 7", op, target, unit)

    claims = [
        says("b", "tuples of B held at most, clusters of 20", "==", 0, "tuples").measured([max(held["b"])]),
        says("a", "tuples of A held at most, by the largest cluster of A", "<=", 1, "times").measured(
            [max(held["a"]) / largest]
        ),
        says("unique", "tuples held of both streams at most, unique keys", "<=", 1, "tuples").measured(
            [max(both)]
        ),
    ]
    shown = 250
    lines = {
        "A, clusters of 20": (range(shown), held["a"][:shown]),
        "B, clusters of 20": (range(shown), held["b"][:shown]),
        "A and B, unique keys": (range(shown), both[:shown]),
    }
    return Figure(
        "pwjoin-7",
        "PWJoin, figure 7: the best case, clusters that follow each other",
        f"{rows:,} tuples of each stream. The tuples of a key come together, about 20 of them, then its "
        "punctuation; each cluster of B comes right after the punctuation of the same key in A. And the same "
        "with one tuple for each key. State after every single tuple; a window of an hour, so that only "
        "punctuations let tuples go.",
        "At any time the memory overhead equals at most the maximum cluster size of stream A, because no B "
        "tuple needs to be maintained. With unique keys at most one tuple needs to be maintained.",
        claims,
        [Chart("Tuples held, the first 250 rows", "rows (tuples and punctuations)", "tuples held", lines)],
        series={"a": list(held["a"]), "b": list(held["b"]), "unique": both},
    )
