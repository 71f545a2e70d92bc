"""What an experiment is: a name, the claims it tests, and a JSON result with a figure beside it.

A claim holds, does not hold, or is null with the reason: open where it needs the full form or a contender
failed, undecided where its runs lie on both sides of the bound. Where no program can meet it, by a
calculation, it is impossible, and that is not held against anyone. Times are compared inside one run only, as
ratios of medians.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, Literal

import streamjoin
from streamjoin.plot import Picture

Op = Literal["<=", ">=", "<", ">", "=="]
Verdict = Literal["holds", "does not hold", "open", "undecided", "impossible"]
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
}


@dataclass(frozen=True)
class ProductVerdict:
    """What the product does where a paper's statement about itself is decided by the reference engine."""

    measured: float | None
    low: float | None
    high: float | None
    runs: int
    holds: bool | None


@dataclass(frozen=True)
class Claim:
    """One statement and what was measured of it."""

    id: str
    says: str
    source: str
    op: Op
    target: float
    aim: float | None
    measured: float | None
    low: float | None
    high: float | None
    runs: int
    unit: str
    holds: bool | None
    why: str | None = None
    product: ProductVerdict | None = None
    impossible: str | None = None  # the calculation

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Claim:
        """From its JSON."""
        product = stored.get("product")
        return cls(**{**stored, "product": None if product is None else ProductVerdict(**product)})

    @property
    def verdict(self) -> Verdict:
        """In a word."""
        if self.impossible is not None and not self.holds:
            return "impossible"
        if self.holds is None:
            return "open" if self.measured is None else "undecided"
        return "holds" if self.holds else "does not hold"

    def beside(self, product: Claim) -> Claim:
        """This claim decides; the product's measurement of the same stands beside it."""
        return replace(
            self,
            product=ProductVerdict(product.measured, product.low, product.high, product.runs, product.holds),
        )


@dataclass(frozen=True)
class Statement:
    """A claim before it is measured."""

    id: str
    says: str
    source: str
    op: Op
    target: float
    unit: str
    aim: float | None = None

    def measured(self, runs: Sequence[float]) -> Claim:
        """The claim with the median of its runs."""
        value = median(runs)
        holds = _HOLDS[self.op](value, self.target)
        return Claim(
            **asdict(self), measured=value, low=min(runs), high=max(runs), runs=len(runs), holds=holds
        )

    def decided(self, runs: Sequence[float]) -> Claim:
        """As `measured`, but undecided where the runs lie on both sides of the bound.

        >>> faster = Statement("a", "A by B", "a paper", "<", 1, "times")
        >>> [faster.decided(runs).verdict for runs in ([0.8, 0.9], [0.9, 1.1], [1.1, 1.2])]
        ['holds', 'undecided', 'does not hold']
        """
        claim = self.measured(runs)
        if len({_HOLDS[self.op](run, self.target) for run in runs}) == 1:
            return claim
        return replace(claim, holds=None, why=f"the runs lie on both sides of {self.target:g}")

    def open(self, why: str) -> Claim:
        """The claim without a measurement."""
        return Claim(**asdict(self), measured=None, low=None, high=None, runs=0, holds=None, why=why)


@dataclass
class Result:
    """What an experiment found; `charts` are drawn beside the JSON file."""

    experiment: str
    seed: int
    claims: list[Claim]
    required: int
    series: dict[str, Any] = field(default_factory=dict)
    charts: Mapping[str, Picture] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "seed": self.seed,
            "machine": machine(),
            "versions": versions(),
            "claims": [asdict(claim) for claim in self.claims],
            "required": self.required,
            "series": self.series,
        }

    def save(self, path: Path) -> list[Path]:
        """Write the JSON and a PNG for each chart; returns all paths."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_json(), indent=2) + "\n")
        pictures = [
            chart.png(path.with_name(f"{path.stem}-{name}.png")) for name, chart in self.charts.items()
        ]
        return [path, *pictures]


@dataclass(frozen=True)
class StepReporter:
    """How an experiment says how far it is."""

    total: Callable[[int], None]
    step: Callable[[str], None]


@dataclass(frozen=True)
class Experiment:
    """Something the lab can run."""

    name: str
    says: str
    run: Callable[[bool, StepReporter], Result]


def machine() -> dict[str, Any]:
    """Where it ran, without names."""
    return {"cpus": os.cpu_count(), "machine": platform.machine(), "system": platform.system()}


def versions() -> dict[str, str]:
    """What it ran on."""
    found = {"python": platform.python_version(), "streamjoin": streamjoin.__version__}
    for package in ("pyspark", "pyarrow", "numpy", "pandas"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
