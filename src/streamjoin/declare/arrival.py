"""Arrival orders: constraints on the order in which the keys of one input arrive.

An arrival order is an implicit punctuation source: the order itself says which keys are closed. Both
orders tolerate `slack` tuples out of place and hold within each source partition where the stream has
`sequence=[partition column, offset column]`. `join.arrival_order` derives the punctuations; the rest of
the code asks the properties of `ArrivalOrder`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from streamjoin.declare.checks import check_flag, is_whole
from streamjoin.errors import InvalidJoin

if TYPE_CHECKING:
    from streamjoin.declare.stream import Stream


@dataclass(frozen=True, slots=True)
class ArrivalOrder:
    """What the library asks of a declared order of arrival."""

    name: ClassVar[str]  # the function of `streamjoin` that declares it
    closes_ranges: ClassVar[bool]  # it closes all keys below one; else single keys

    @property
    def slack(self) -> int:
        """How many tuples may lie between a tuple and its place in the order."""
        raise NotImplementedError

    @property
    def descending(self) -> bool:
        """Whether keys fall instead of rise."""
        return False

    def check(self, stream: Stream) -> None:
        """Refuse what the order cannot mean on this stream; called when a join is planned."""

    def describe(self, stream: Stream) -> str:
        """What closes keys, for explain() and for the state report."""
        return f"{self.name} arrival of {stream.name}"

    def assumes(self, stream: Stream) -> str | None:
        """What the data must do beside keeping the order, so that keys do get closed."""
        return None


def _check_slack(slack: Any) -> None:
    if not is_whole(slack, least=0):
        raise InvalidJoin(f"slack is {slack!r}; give a whole number of tuples, 0 or more")


@dataclass(frozen=True, slots=True)
class Clustered(ArrivalOrder):
    """Equal keys come together; up to `slack` tuples of other keys may lie between two of one key.

    With `sequence=[partition column, offset column]` this holds within each partition, and all tuples
    of a key come through one.
    """

    slack: int = 0
    name: ClassVar[str] = "clustered"
    closes_ranges: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_slack(self.slack)


@dataclass(frozen=True, slots=True)
class Ordered(ArrivalOrder):
    """Keys ascend (or descend); a smaller key may follow within the next `slack` tuples.

    With `sequence=[partition column, offset column]` this holds within each partition. No partition
    appears later with keys that all others have passed.
    """

    descending: bool = False
    slack: int = 0
    name: ClassVar[str] = "ordered"
    closes_ranges: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_flag(self.descending, "ordered: descending")
        _check_slack(self.slack)

    def check(self, stream: Stream) -> None:
        """Refuse keys of several columns."""
        if len(stream.key) > 1:
            raise InvalidJoin(
                f"stream {stream.name!r}: ordered arrival needs a key of one column, "
                f"it has {len(stream.key)}; declare clustered arrival instead"
            )

    def assumes(self, stream: Stream) -> str | None:
        """That rows keep coming, in every partition."""
        if len(stream.sequence) == 2:
            return f"every partition of {stream.name} goes on: the slowest one counts"
        return f"{stream.name} goes on"


Arrival: TypeAlias = Clustered | Ordered


def clustered(*, slack: int = 0) -> Clustered:
    """Equal keys arrive together, with `slack` tuples of tolerance."""
    return Clustered(slack)


def ordered(*, descending: bool = False, slack: int = 0) -> Ordered:
    """Keys arrive in order, with `slack` tuples of tolerance."""
    return Ordered(descending, slack)
