"""State component: one part of an operator's state that survives a stop.

A component holds sorted runs, a JSON part, or both. Snapshot, rebucketing and inspection know nothing
of single components; they iterate over the operator's list of them:

    snapshot     stores the runs of `sorted_runs()` and `to_json()` under `name`; `restore` takes them back
    rebucketing  cuts the runs by the hash of their rows; `merge` combines the JSON parts of all old
                 buckets into the part of the whole state, `split` cuts the share of one new bucket from it;
                 where a join that feeds an input is rebucketed, `refed` forgets the old senders
    inspection   counts `state_rows` as what the component `holds`, and shows its `contents`

Invariants: `restore(to_json())` gives the same component; the `digest` of a merged part is the same for
the same state, in however many buckets it is. A component whose part is None stores none, and begins
empty when it is restored.

The defaults are those of a part that every bucket has alike (watermarks, ranges): it is copied to every
new bucket, and buckets that disagree are refused. `docs/contributing/state-component.md` has the recipe.

Cost: `to_json` runs once per bucket and batch, so a part is small; what grows with the rows is in runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

import numpy as np

from streamjoin.columnar.batch import Batch, Ints, Mask
from streamjoin.errors import StateFormatError

if TYPE_CHECKING:
    from streamjoin.state.sorted_runs import SortedRuns

Holds = Literal["tuples", "punctuations", "pending", "groups", "statistics"]
TimeSpan = tuple[int, int]
_LOWEST, _HIGHEST = (int(end) for end in (np.iinfo(np.int64).min, np.iinfo(np.int64).max))


@dataclass(frozen=True, slots=True)
class HashRange:
    """The hashes of one bucket: from `first` to `last`, both inclusive."""

    first: int = _LOWEST
    last: int = _HIGHEST

    @property
    def of_first_bucket(self) -> bool:
        """Whether this is the bucket that has what belongs to no key: sums, rows without a key."""
        return self.first == _LOWEST

    def slice_of(self, hashes: Ints) -> slice:
        """Where the range lies among ascending hashes."""
        start, stop = np.searchsorted(hashes, self.first), np.searchsorted(hashes, self.last, side="right")
        return slice(int(start), int(stop))

    def mask(self, hashes: Ints) -> Mask:
        """Which hashes lie in the range."""
        found: Mask = (hashes >= self.first) & (hashes <= self.last)
        return found


@dataclass(frozen=True, slots=True)
class Contents:
    """Entries of one kind in a component, for a reader of the state.

    `waits`: each of the keys waits until the other inputs close it. `past_us`: the first and the last
    watermark that ends an entry.
    """

    what: str
    count: int
    keys: Batch | None = None
    waits: bool = False
    past_us: TimeSpan | None = None


class StateComponent(Protocol):
    """One part of an operator's state that survives a stop; subclass it and override what differs."""

    name: str  # of the JSON part; unique in its operator
    holds: Holds = "statistics"  # what its rows count as in the size of the state
    input: int | None = None  # the input it belongs to; None: to the whole join
    by_sender: bool = False  # its rows count the buckets of the join that feeds its input

    def sorted_runs(self) -> Sequence[SortedRuns]:
        """The sorted runs it holds, always in the same order."""
        return ()

    @property
    def state_rows(self) -> int:
        """How many entries it holds."""
        return sum(side.live_rows for side in self.sorted_runs())

    def contents(self) -> Iterator[Contents]:
        """What it holds, by kind."""
        return iter(())

    def to_json(self) -> Any:
        """All that is not in its runs, as plain JSON; None where that is nothing."""
        return None

    def restore(self, part: Any) -> None:
        """Go on from what `to_json` gave; runs are restored before, by whoever restores the operator."""
        return

    def merge(self, parts: Sequence[Any]) -> Any:
        """The parts of all old buckets, in the order of their hashes, as the part of the whole state."""
        return agreed(self.name, parts)

    def split(self, whole: Any, hashes: HashRange) -> Any:
        """The share of one new bucket in the part of the whole state."""
        return whole

    def refed(self, whole: Any, senders: int) -> Any:
        """The part of the whole state once the join that feeds its input has so many other buckets.

        What only some of the old buckets have sent is sent again by all the new ones.
        """
        return whole

    def digest(self, whole: Any) -> Any:
        """What of the whole part must be the same before and after rebucketing."""
        return whole


def agreed(name: str, parts: Sequence[Any]) -> Any:
    """The part that every bucket has alike."""
    if any(part != parts[0] for part in parts[1:]):
        raise StateFormatError(
            f"the buckets of this state disagree on {name}, which a finished batch never leaves; "
            "restore the checkpoint from a backup"
        )
    return parts[0]


def refuse(what: str) -> NoReturn:
    """This version cannot divide a part of the state among buckets."""
    raise StateFormatError(
        f"this state holds {what}, which this version cannot divide among buckets; "
        "use the version of streamjoin that wrote it"
    )


class RunsComponent(StateComponent):
    """A component that is sorted runs and nothing else."""

    def __init__(self, name: str, side: SortedRuns, holds: Holds, number: int | None = None) -> None:
        self.name, self.side, self.holds, self.input = name, side, holds, number

    def sorted_runs(self) -> Sequence[SortedRuns]:
        return (self.side,)
