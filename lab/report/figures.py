"""An experiment too long for one sitting: parts that are done whole or again, each giving figures.

A part runs some contenders and tells what came out as figures: what was run, what the paper (or the issue)
says of it, the claims as measured, pictures. A run that was interrupted goes on with the first part that is
not finished (`journal`); `report` makes one page of all figures. The time left is the time the parts left
are expected to take, scaled by how those done in this run did, with a minute as expected before them. Worked
number: of parts expected to take 60, 120 and 30 s the first took 90, so (120 + 30) · (60 + 90) / (60 + 60) =
187.5 s are left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.experiment import Claim
from streamjoin.plot import Picture


@dataclass(frozen=True)
class Table:
    """Numbers shown under the pictures of a figure."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | int | None]]


@dataclass(frozen=True)
class Figure:
    """One figure or table of a paper, or one comparison: a section of the report."""

    id: str  # "mjoin-9": unique, up to the first dash the chapter; picture files are named after it
    title: str
    setting: str  # what was run, for someone who has not seen the paper
    statement: str  # what the paper says, or what is asked
    claims: Sequence[Claim]
    pictures: Sequence[Picture] = ()
    table: Table | None = None
    notes: Sequence[str] = ()  # why something differs, what was scaled down
    series: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What a part is given."""

    quick: bool
    step: Callable[[str], None]  # says what is being done now
    folder: Path  # kept until the whole run has ended, so parts may share prepared data


@dataclass(frozen=True)
class ReportPart:
    """Some figures, made in one go."""

    name: str
    says: str
    seconds: tuple[float, float]  # expected on 2 quiet cores: with --quick, and in full
    run: Callable[[Context], Sequence[Figure]]

    def expected(self, *, quick: bool) -> float:
        return self.seconds[0 if quick else 1]


@dataclass(frozen=True)
class ReportedExperiment:
    """An experiment of parts, with a page to read; `chapters`: headings by what figures' ids begin with."""

    name: str
    says: str
    title: str
    intro: str
    chapters: Mapping[str, str]
    parts: Callable[[], Sequence[ReportPart]]
    required: int
    seed: int
    said_by: str  # who says what a figure is to show: "The paper says"


_AS_EXPECTED_S = 60.0  # before it, so that a first part of a second says little


class Pace:
    """How long the rest takes, from what was expected and what the parts done took.

    >>> pace = Pace([60, 120, 30])
    >>> pace.left()
    210.0
    >>> pace.done(60, 90)
    >>> pace.left()
    187.5
    >>> pace.left(begun=100)  # so long ago the next part began
    87.5
    """

    def __init__(self, expected: Sequence[float]) -> None:
        self.whole = float(sum(expected))
        self._ahead, self._expected, self._took = self.whole, _AS_EXPECTED_S, _AS_EXPECTED_S

    @property
    def behind(self) -> float:
        """Expected seconds of what is done."""
        return self.whole - self._ahead

    def done(self, expected: float, took: float | None) -> None:
        """A part is finished; None: it was, in an earlier run."""
        self._ahead -= expected
        if took is not None:
            self._expected += expected
            self._took += took

    def left(self, begun: float = 0.0) -> float:
        return max(self._ahead * self._took / self._expected - begun, 0.0)


def in_words(seconds: float) -> str:
    """A time left, as one says it.

    >>> [in_words(s) for s in (20, 89, 600)]
    ['less than a minute', '1 min', '10 min']
    """
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes and seconds >= 45 else "less than a minute"
