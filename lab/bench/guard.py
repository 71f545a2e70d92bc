"""The regression guard: is anything slower than it was at the last release?

`make bench` measures the short form, on Spark and the operator alone. Each number is a ratio to a fixed
reference measured in the same run: Spark's own join, or numpy for the operator. So a slower machine, or a
busier one, changes both. The ratios stand beside those that the last release stored, with their spread.

Slower means: the median is more than 15 % below that of the release, and the best round is worse than the
worst one then. Worked number: 3.0 (2.9 to 3.2) then, 2.4 (2.2 to 2.7) now: 20 % less and 2.7 < 2.9, slower;
with one round at 3.0 now, as before. Exit status 1 if something is slower, 0 otherwise.

`make bench RELEASE=1` stores what it measured as the new release. About four minutes on 2 quiet cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from lab.bench import on_spark, operator
from lab.experiment import Claim, machine, versions

STORED = Path("docs/results/bench.json")
_MARGIN = 0.15
Verdict = Literal["slower", "as before", "faster", "new", "gone"]


@dataclass(frozen=True)
class Ratio:
    """How many times the reference's speed, in each round; more is better."""

    says: str
    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        return float(median(self.runs))

    def text(self) -> str:
        return f"{self.median:.2f} ({min(self.runs):.2f} to {max(self.runs):.2f})"


@dataclass(frozen=True)
class Line:
    """One number now and then."""

    name: str
    now: Ratio | None
    then: Ratio | None
    verdict: Verdict

    @property
    def change(self) -> str:
        if self.now is None or self.then is None:
            return ""
        return f"{100 * (self.now.median / self.then.median - 1):+.0f} %"


def compared(now: Mapping[str, Ratio], then: Mapping[str, Ratio]) -> list[Line]:
    """Every number of either, with its verdict."""
    names = [*now, *(name for name in then if name not in now)]
    return [
        Line(name, now.get(name), then.get(name), _verdict(now.get(name), then.get(name))) for name in names
    ]


def _verdict(now: Ratio | None, then: Ratio | None) -> Verdict:
    if now is None or then is None:
        return "gone" if now is None else "new"
    if now.median < (1 - _MARGIN) * then.median and max(now.runs) < min(then.runs):
        return "slower"
    if then.median < (1 - _MARGIN) * now.median and max(then.runs) < min(now.runs):
        return "faster"
    return "as before"


def read(stored: Mapping[str, Any]) -> dict[str, Ratio]:
    """The ratios of a stored result."""
    return {name: Ratio(one["says"], tuple(one["runs"])) for name, one in stored["ratios"].items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, compare, tell; 1 if something got slower."""
    parser = argparse.ArgumentParser(
        prog="make bench", description="Is anything slower than at the last release?"
    )
    parser.add_argument("--store", action="store_true", help="store the result as that of this release")
    store = parser.parse_args(arguments).store
    console = Console(soft_wrap=True, highlight=False)
    result = measured()
    out = STORED if store else Path("out/bench.json")
    then = json.loads(STORED.read_text()) if STORED.exists() else None
    for claim in result["claims"]:
        console.print(_told(claim))
    lines = compared(read(result), {} if then is None else read(then))
    console.print(shown(lines, "no release" if then is None else then["versions"]["streamjoin"]))
    for part in ("machine", "versions"):
        if then is not None and {**then[part], "streamjoin": ""} != {**result[part], "streamjoin": ""}:
            console.print(f"Another {part} than then: {then[part]}; ratios may differ for that alone.")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(
        json.dumps({**result, "claims": [asdict(one) for one in result["claims"]]}, indent=2) + "\n"
    )
    console.print(f"Written: {out}")
    slower = [line for line in lines if line.verdict == "slower"]
    for line in slower:
        console.print(f"SLOWER than at the last release: {line.name} ({line.change})")
    return 1 if slower else 0


def measured() -> dict[str, Any]:
    """The short form, about four minutes."""

    def step(what: str) -> None:
        print(f"  {what}", file=sys.stderr, flush=True)

    alone = operator.measure(step)
    ratios = {**on_spark.measure(step), **alone.ratios}
    return {
        "experiment": "bench",
        "machine": machine(),
        "versions": versions(),
        "claims": alone.claims,
        "ratios": {name: {"says": says, "runs": runs} for name, (says, runs) in ratios.items()},
    }


def _told(claim: Claim) -> str:
    word = "holds" if claim.holds else "DOES NOT HOLD"
    measured = f"{claim.measured:,.2f} ({claim.low:,.2f} to {claim.high:,.2f})"
    return f"{word:14}{claim.says}: {measured}, wanted {claim.op} {claim.target:,g}"


def shown(lines: Sequence[Line], release: str) -> Table:
    """What a reader sees."""
    table = Table(title="Speed in multiples of the reference", title_justify="left")
    for column in ("", "what", "now", f"then ({release})", "change", "verdict"):
        table.add_column(column)
    for line in lines:
        known = line.now or line.then
        table.add_row(
            line.name,
            "" if known is None else known.says,
            "" if line.now is None else line.now.text(),
            "" if line.then is None else line.then.text(),
            line.change,
            line.verdict,
        )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
