"""State report: the stored state of a join, as text and JSON: its size, why it is kept, what evicts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from streamjoin.join.group_by import KEYED, UNKEYED
from streamjoin.join.persistence.inspect import InputState, InspectedState, StateEntries
from streamjoin.join.spec import InputSpec, JoinSpec
from streamjoin.join.strategies.purge import NoPurge
from streamjoin.join.watermarks import NO_WATERMARK
from streamjoin.state.component import TimeSpan

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_PURGE = NoPurge().name


@dataclass(frozen=True)
class JoinState:
    """A join's state by bucket. `declared` is what the query said of itself, nothing in an older state."""

    operator: int
    spec: JoinSpec
    reached_us: tuple[int, ...]
    buckets: Mapping[int, InspectedState]
    declared: Mapping[str, Any]

    @property
    def whole(self) -> InspectedState:
        return reduce(InspectedState.and_also, self.buckets.values())

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON; event times in microseconds since 1970."""
        return {
            "operator": self.operator,
            "join": self.spec.name,
            "how": self.spec.how.name,
            "buckets": self.spec.buckets,
            "inputs": [
                {
                    "name": one.name,
                    "window_us": one.window_us,
                    "watermark_us": None if reached == NO_WATERMARK else reached,
                    "closes": one.closes,
                }
                for one, reached in zip(self.spec.inputs, self.reached_us, strict=True)
            ],
            "state": asdict(self.whole),
            "by_bucket": {str(number): asdict(one) for number, one in self.buckets.items()},
        }

    def text(self) -> str:
        """For someone who wants to know why the state is as large as it is."""
        names = " ⋈ ".join(one.name for one in self.spec.inputs)
        whole, shown = self.whole, sorted(self.buckets)
        of = f"{self.spec.buckets} buckets"
        of = of if len(shown) == self.spec.buckets else f"bucket {shown[0]} of {of}"
        lines = [f"{self.spec.name} (operator {self.operator}): {names}, {self.spec.how.name} join, {of}"]
        for one, spec, reached in zip(whole.inputs, self.spec.inputs, self.reached_us, strict=True):
            lines += ["", *self._input(one, spec, reached)]
        if whole.propagated or whole.waiting or whole.other_rows:
            lines.append("")
        lines += [
            f"propagated: {_count(each.count, 'key')} {self._until_closed(each)}" for each in whole.propagated
        ]
        if whole.waiting:
            lines.append(f"{_count(whole.waiting, 'key')} closed and not purged yet: {self._purge()}")
        lines += [_besides(tag, rows) for tag, rows in whole.other_rows.items() if rows]
        return "\n".join([*lines, "", *self._table()])

    def _input(self, held: InputState, spec: InputSpec, reached_us: int) -> list[str]:
        times = "" if held.times_us is None else f", event times {_span(held.times_us)}"
        tombstones = f" and {held.tombstones:,} tombstones" if held.tombstones else ""
        stored = f"{_size(held.nbytes)} in {_count(held.runs, 'run')}"
        lines = [f"{held.name}: {_count(held.tuples, 'tuple')}{tombstones}, {stored}{times}"]
        if spec.layout.timed and reached_us != NO_WATERMARK:
            lines.append(f"  its watermark is {_time(reached_us)}")
        if spec.closes is not None:
            lines.append(f"  it closes keys by {spec.closes}")
        if held.ended:
            lines.append("  it has ended: nothing more comes on it")
        if held.unmatched:
            lines.append(f"  {held.unmatched:,} have no match yet; they leave padded when they are evicted")
        lines += [f"  {self._reason(each, spec)}" for each in held.entries]
        if held.closed_keys:
            lines.append(f"  its closed keys: {held.closed_keys:,}, {_size(held.closed_key_bytes)}")
        return lines

    def _reason(self, kept: StateEntries, spec: InputSpec) -> str:
        if kept.what == "tuples":
            return f"{_count(kept.count, 'tuple')} {self._until_evicted(kept, spec)}{_examples(kept)}"
        if kept.what in ("closed keys", "unique keys seen"):
            said = "key is" if kept.count == 1 else "keys are"
            how = "as come (unique)" if kept.what == "unique keys seen" else "as closed"
            return f"{kept.count:,} {said} remembered {how} {self._until_closed(kept)}{_examples(kept)}"
        if kept.what == "scheduled punctuations":
            past = _span(kept.past_us or (0, 0))
            said = f"{_count(kept.count, 'punctuation')} of its control source"
            return f"{said} {_wait(kept)} until its event time passes {past}{_examples(kept)}"
        if kept.what == "forwarded punctuations":
            said = _count(kept.count, "punctuation")
            return f"{said} of a later key {_wait(kept)} until its state has no tuple of it"
        if kept.what == "partial punctuations":
            said, every = _count(kept.count, "punctuation"), f"all of its {spec.partitions} partitions"
            return f"{said} {_wait(kept)} until {every} have sent it{_examples(kept)}"
        return f"{_count(kept.count, kept.what.removesuffix('s'))} closed: remembered for good"

    def _until_evicted(self, kept: StateEntries, spec: InputSpec) -> str:
        if not kept.open:
            return f"can match nothing any more: {self._purge()}"
        ways = []
        for name in kept.open:
            way = f"{name} closes their key{self._unless_declared(name)}"
            if kept.past_us is not None:
                window = (
                    "" if spec.window_us is None else f" (window {timedelta(microseconds=spec.window_us)})"
                )
                way += f" or its event time passes {_span(kept.past_us)}{window}"
            ways.append(way)
        text = f"{_wait(kept)} until {', and '.join(ways)}"
        if kept.enough:
            text += f"; {' or '.join(kept.enough)} closing it is enough: it holds none of it"
        if self.spec.how.forgets_matched and spec is self.spec.inputs[0]:
            text += "; or until their first match"
        return text

    def _until_closed(self, kept: StateEntries) -> str:
        if not kept.open:
            return f"though every input has closed them: {self._purge()}"
        past = ", or watermarks are past what they could match" if self.spec.forgets_closed_keys else ""
        names = (f"{name} closes them too{self._unless_declared(name)}" for name in kept.open)
        return f"until {' and '.join(names)}{past}"

    def _unless_declared(self, name: str) -> str:
        """That an input never closes a key, where that is known."""
        spec = next(one for one in self.spec.inputs if one.name == name)
        if spec.closes is not None or not self.declared:
            return ""
        return " (which nothing declares: punctuation=, arrival= or unique=True would)"

    def _purge(self) -> str:
        if self.declared.get("purge") == _NO_PURGE:
            return "purge='none' applies no punctuation"
        return "the next purge evicts them"

    def _table(self) -> list[str]:
        head = ["bucket", "input", "tuples", "tombstones", "bytes", "runs", "closed_keys", "event times"]
        rows = [
            [
                str(number),
                one.name,
                *(
                    f"{value:,}"
                    for value in (one.tuples, one.tombstones, one.nbytes, one.runs, one.closed_keys)
                ),
                "" if one.times_us is None else _span(one.times_us),
            ]
            for number, found in sorted(self.buckets.items())
            for one in found.inputs
        ]
        return _aligned([head, *rows])


def _besides(tag: str, rows: int) -> str:
    """Rows that are no input's: those of groups."""
    said = f"groups: {_count(rows, 'row')} added up so far"
    if tag == KEYED:
        return f"{said}; a group is emitted when its key is finished"
    if tag == UNKEYED:
        return f"{said} without a key; they are emitted when every preserved input has ended"
    return f"side {tag}: {_count(rows, 'row')}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns under each other, the numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = (False, False, True, True, True, True, True, False)
    return [
        "  ".join(
            word.rjust(width) if is_right else word.ljust(width)
            for word, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _wait(kept: StateEntries) -> str:
    return "waits" if kept.count == 1 else "wait"


def _examples(kept: StateEntries) -> str:
    more = ", …" if kept.count > len(kept.keys) else ""
    return f"; keys {', '.join(kept.keys)}{more}" if kept.keys else ""


def _time(time_us: int) -> str:
    """An event time; without a zone it is what the stream's own clock says.

    >>> _time(1_700_000_000_000_000)
    '2023-11-14 22:13:20'
    """
    try:
        return str((_EPOCH + timedelta(microseconds=time_us)).replace(tzinfo=None))
    except OverflowError:
        return "the end of time"


def _span(span: TimeSpan) -> str:
    first, last = map(_time, span)
    return first if first == last else f"{first} to {last}"


def _size(nbytes: int) -> str:
    """Bytes in the largest unit.

    >>> _size(1_234), _size(5)
    ('1.2 kB', '5 bytes')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return _count(nbytes, "byte")
