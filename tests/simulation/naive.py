"""The rules of a stream join once more, in plain Python: lists, sets and nested loops.

Written from docs/semantics.md, sharing nothing with the operator. The model works row
by row in the order in which the library's driver handed rows out, so that it knows exactly which
rows take part, what is held, what is propagated. What the join must give it does not compute that
way: `results` is the batch join of the rows that took part.

A key that is closed on every input is forgotten, and where all inputs have windows one that an input
closed long enough ago. What comes later is a new key of the same value: rows carry the *epoch* of their
key, and only rows of one epoch join.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.simulation.elements import (
    NEVER,
    Closure,
    Key,
    SortedRuns,
    Stand,
    Took,
    covers,
    exploded,
    follow,
    key_of,
    queue,
    singles,
    take,
    wider,
)
from tests.simulation.script import (
    KNOWS,
    Advance,
    Control,
    End,
    Eq,
    Finish,
    Input,
    Operation,
    Punctuate,
    Push,
    Restart,
    Row,
    Script,
    Settings,
    Star,
    known,
    passes,
    rank,
)

Ids = tuple[int | None, ...]  # of a result's components; None where it is padded


class Naive:
    """The model of one script; `play` each operation, then compare."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.turns: Iterator[tuple[int, int]] = iter(())
        self.sides = [SortedRuns(known(declared, script.settings)) for declared in script.inputs]
        self.watermarks = [NEVER] * len(self.sides)
        self.took: list[Took] = []
        self.violations: list[tuple[int, str, bool, int]] = []
        self.over: list[tuple[Key, int]] = []  # propagated keys with their epochs, in order
        self.propagated: dict[Key, int] = {}  # and the time that some input had reached
        self.finished: dict[Key, int] = {}  # the last epoch that was propagated
        self.epoch: Counter[Key] = Counter()
        self.alone: Counter[tuple[int, Ids]] = Counter()  # results of one tuple: operation, ids
        self.alone_keys: set[tuple[Key, int]] = set()  # and their keys with their epochs
        self.unkeyed: list[Took] = []
        self.place: dict[int, int] = {}  # of each id, among the rows that took part
        self.lost: dict[int, int] = {}  # ids whose time to live is over, and how many rows had come then
        self.aside: dict[int, tuple[list[Stand], list[Closure]]] = {}  # only within a batch
        self.operation = -1

    def play(self, operation: Operation, turns: Sequence[tuple[int, int]]) -> None:
        """One operation, inputs taking these turns: afterwards `violations` and `over` hold what it must
        emit. The library may give turns also to punctuations that say nothing.
        """
        self.turns = iter(turns)
        self.operation += 1
        self.violations, self.over = [], []
        everything = (Star(),) * len(self.script.inputs[0].types)
        if isinstance(operation, Push):
            self._batch({i: list(rows) for i, rows in operation.rows.items()}, {})
        elif isinstance(operation, Punctuate):
            says = [] if operation.form == "partial" else singles(operation.patterns)
            self._batch({}, {operation.input: says})
        elif isinstance(operation, Control):
            side = self.sides[operation.input]
            for patterns, t in operation.punctuations:
                says = [punctuation for one in exploded(patterns) for punctuation in singles(one)]
                side.waiting += [(t, punctuation) for punctuation in self._heeded(says)]
            self._batch({}, {})
        elif isinstance(operation, Advance):
            self._batch({}, {}, {operation.input: operation.t})
        elif isinstance(operation, End):
            self._batch({}, {operation.input: [Closure(None, everything)]})
        elif isinstance(operation, Finish):
            self._batch({}, {i: [Closure(None, everything)] for i in range(len(self.sides))})
        else:
            assert isinstance(operation, Restart)

    # One batch

    def _batch(
        self,
        rows: dict[int, list[Row]],
        closed_keys: dict[int, list[Closure]],
        own_watermarks: dict[int, int] | None = None,
    ) -> None:
        queues, implied = {}, {}
        for i, side in enumerate(self.sides):
            side.reached = max([side.reached, *self._times(i, rows)])
        for i in sorted({*rows, *closed_keys}):
            arrived, says = self._data(i, rows.get(i, []))
            says, meant = self._heeded(says), self._heeded(closed_keys.get(i, []))
            behind, implied[i] = follow(self.sides[i], arrived)
            taking = self._admit(i, arrived, says, behind)
            counted = self._count_partial(i, says + meant)
            if self.script.settings.driver == "timestamp" and not self.sides[i].declared.ordered_rows:
                taking = sorted(taking, key=lambda each: NEVER if each.row.t is None else each.row.t)
            if taking or counted:
                queues[i] = queue(self.sides[i].declared, taking, counted)
        while queues:
            turn, quota = next(turn for turn in self.turns if turn[0] in queues)
            batch, says, queues[turn] = take(queues[turn], quota)
            if not queues[turn][0] and not queues[turn][1]:
                del queues[turn]
            self._turn(turn, batch, says)
        for i in list(self.aside):
            self._turn(i, [], [], last=True)
        for i in sorted(implied):
            self._close(i, implied[i])
        self._advance(rows, own_watermarks or {})
        while self._control():
            self._advance({}, {})
        self._forget()

    @property
    def _knows_punctuations(self) -> bool:
        operator = self.script.settings.operator
        return operator is None or "punctuation" in KNOWS[operator]

    def _heeded(self, says: list[Closure]) -> list[Closure]:
        """Operators that know no punctuations still know that an input has ended."""
        if self._knows_punctuations:
            return says
        return [one for one in says if one.key is None and all(isinstance(p, Star) for p in one.patterns)]

    def _turn(self, i: int, rows: list[Stand], says: list[Closure], *, last: bool = False) -> None:
        """Rows and the punctuations behind them; value-oriented, those that others wait for come first, and
        the others are put aside as long as there are such. The last time nothing is."""
        waiting, behind = self.aside.pop(i, ([], []))
        rows, says = waiting + rows, behind + says
        if self.script.settings.order == "value_oriented":
            others = [side for side in self.sides if side is not self.sides[i]]

            def awaited(key: Key | None) -> bool:
                return key is not None and any(side.punctuated(key) for side in others)

            urgent = [each for each in rows if awaited(key_of(each.row))]
            if urgent and len(urgent) < len(rows):
                now = [punctuation for punctuation in says if awaited(punctuation.key)]
                self._join(i, urgent)
                self._close(i, now)
                rows = [each for each in rows if each not in urgent]
                says = [punctuation for punctuation in says if punctuation not in now]
                if not last:
                    self.aside[i] = rows, says
                    return
        self._join(i, rows)
        self._close(i, says)

    def _data(self, i: int, rows: list[Row]) -> tuple[list[Stand], list[Closure]]:
        """Data rows with keys and where they stand, and the punctuations among the rows."""
        side, arrived, says = self.sides[i], [], []
        for number, row in enumerate(rows):
            at = (row.partition, row.offset) if side.declared.sequence else (0, number)
            known = at if side.declared.ordered_rows else None
            if side.declared.punctuation == "marked" and row.flag:
                side.counts["control_rows_with_data"] += 1  # every row has an id
                if None in row.key and not side.declared.wildcard:
                    if not self._knows_punctuations:
                        continue
                    self.violations.append((i, "null_punctuation", False, row.id))
                    side.counts["null_punctuation"] += 1
                    continue
                patterns = tuple(Star() if value is None else Eq(value) for value in row.key)
                says.append(Closure(None if None in row.key else key_of(row), patterns, known))
                continue
            side.counts["rows"] += 1
            if None in row.key:
                side.counts["null_keys"] += 1
                if i in self.script.settings.preserved and side.ended:
                    self.violations.append((i, "after_punctuation", False, row.id))
                    side.counts["after_punctuation"] += 1
                elif i in self.script.settings.preserved:
                    self.unkeyed.append(Took(i, row, key_of(row), 0, self.operation, False))
                    self._emit(self.unkeyed[-1])
                continue
            arrived.append(Stand(row, known))
            if side.declared.punctuation == "closing" and row.flag:
                says.append(Closure(key_of(row), (), known))
        return arrived, says

    def _admit(self, i: int, arrived: list[Stand], says: list[Closure], behind: set[int]) -> list[Stand]:
        """The rows that take part; kept violations last, where no sequence says otherwise."""
        side = self.sides[i]
        declared, windowed = side.declared, self.script.windowed
        reason: dict[int, str] = {}

        def kept(why: str | None) -> bool:
            return why is None or (declared.on_violation == "keep" and not (why == "null_time" and windowed))

        for row, at, _ in arrived:
            key = key_of(row)
            own = declared.partitions == 1 and (
                row.id in behind
                or any(punctuation.before(at) and punctuation.covers(key) for punctuation in says)
            )
            if declared.time is not None and row.t is None:
                reason[row.id] = "null_time"
            elif windowed and row.t is not None and row.t < self.watermarks[i]:
                reason[row.id] = "late"
            elif declared.unique and key in side.seen:
                reason[row.id] = "duplicate_key"
            elif side.punctuated(key) or own:
                reason[row.id] = "after_punctuation"
        if declared.unique:
            first: dict[Key, Any] = {}
            ranked = [(at or _order(row), row) for row, at, _ in arrived if kept(reason.get(row.id))]
            for _, row in sorted(ranked, key=lambda each: each[0]):
                if first.setdefault(key_of(row), row) is not row:
                    reason.setdefault(row.id, "duplicate_key")
        taking = []
        for row, at, _ in arrived:
            why = reason.get(row.id)
            if why is not None:
                self.violations.append((i, why, kept(why), row.id))
                side.counts[why] += 1
                side.counts["refused"] += not kept(why)
            if kept(why):
                taking.append(Stand(row, at, why is not None))
        return sorted(taking, key=lambda each: each.violates)

    def _count_partial(self, i: int, says: list[Closure]) -> list[Closure]:
        """The punctuations that count: with several partitions, those that each of them has made."""
        side = self.sides[i]
        if side.declared.partitions == 1:
            return says
        counted = [
            punctuation for punctuation in says if punctuation.at is None
        ]  # by hand: the whole input's
        for punctuation in says:
            same = Closure(punctuation.key, () if punctuation.key is not None else punctuation.patterns)
            if punctuation.at is not None and not side.knows(same):
                side.partial_punctuations.add((same, punctuation.at[0]))
        made = Counter(punctuation for punctuation, _ in side.partial_punctuations)
        enough = [punctuation for punctuation, number in made.items() if number >= side.declared.partitions]
        side.partial_punctuations = {
            partial_key for partial_key in side.partial_punctuations if partial_key[0] not in enough
        }
        return counted + enough

    def _join(self, i: int, rows: list[Stand]) -> None:
        """Rows take part; those that may still find partners are kept."""
        side, kept, too_old = self.sides[i], [], self.sides[i].counts["too_old"]
        arrived = [
            Took(i, row, key_of(row), self._epoch_of(row), self.operation, violates)
            for row, _, violates in rows
        ]
        self.place |= {each.row.id: len(self.took) + n for n, each in enumerate(arrived)}
        self.took += arrived
        matched = self._forget_matched(i, arrived) if self.script.settings.forgets_matched else []
        for took in arrived:
            key = took.key
            others = [other for other in self.sides if other is not side]
            over = key in self.propagated
            over = over or any(other.closed(key) and key not in other.live for other in others)
            if side.declared.on_violation == "keep":
                over = over or (side.closed(key) and key not in side.live)
            if took in matched:
                continue
            if over or self._useless(took):
                self._leave(took)
            elif self._expired(took):
                self._lose(took)
                side.counts["too_old"] += 1
            else:
                kept.append(took)
        for took in kept:
            side.live.setdefault(took.key, []).append(took)
        side.counts["stored"] += len(kept)
        side.counts["not_stored"] += len(rows) - len(kept) - (side.counts["too_old"] - too_old)
        if side.declared.unique:
            side.seen = {key_of(row): self._latest(i) for row, _, _ in rows} | side.seen
            self._settle({key_of(row) for row, _, _ in rows})

    def _epoch_of(self, row: Row) -> int:
        """Rows of a finished key are alone: they match nothing, not even each other."""
        return -1 - row.id if key_of(row) in self.propagated else self.epoch[key_of(row)]

    def _forget_matched(self, i: int, arrived: list[Took]) -> list[Took]:
        """Left tuples go at their first match; gives those among the arrived."""
        keys = {took.key for took in arrived}
        left = arrived if i == 0 else [took for key in keys for took in self.sides[0].live.get(key, [])]
        matched = [took for took in left if self._matched(took)]
        for took in matched:
            if self.script.settings.how == "left_semi":
                self._emit(took)
            if i == 1:
                self.sides[0].live[took.key].remove(took)
                if not self.sides[0].live[took.key]:
                    del self.sides[0].live[took.key]
        if i == 1:
            self._settle({took.key for took in matched if self.sides[0].closed(took.key)})
        return matched

    def _matched(self, took: Took) -> bool:
        """Whether a tuple has taken part in a combination of those so far."""
        same = [each for each in self.took if (each.key, each.epoch) == (took.key, took.epoch)]
        sides = [
            [took] if i == took.input else [each for each in same if each.input == i]
            for i in range(len(self.sides))
        ]
        return any(self._valid(parts) for parts in itertools.product(*sides))

    def _valid(self, parts: Sequence[Took]) -> bool:
        rows = [part.row for part in parts]
        last = max(self.place[row.id] for row in rows)
        return (
            inside_windows(self.script.inputs, rows)
            and passes(self.script.settings, [row.id for row in rows])
            and all(self.lost.get(row.id, last + 1) > last for row in rows)
        )

    def _expired(self, took: Took) -> bool:
        ttl, t = self.sides[took.input].declared.ttl, took.row.t
        return ttl is not None and (t is None or self.watermarks[took.input] > t + ttl)

    def _lose(self, took: Took) -> None:
        """A tuple goes though it could still join."""
        self.lost[took.row.id] = len(self.took)
        self.sides[took.input].counts["expired"] += 1
        self._leave(took)

    def _leave(self, took: Took) -> None:
        """A tuple is evicted; without a match it is a result where its input is preserved."""
        if took.input in self.script.settings.preserved and not self._matched(took):
            self._emit(took)

    def _emit(self, took: Took) -> None:
        if took not in self.unkeyed:
            self.alone_keys.add((took.key, took.epoch))
        self.alone[self.operation, alone(took, self.script)] += 1

    def _useless(self, took: Took) -> bool:
        window, t = self.sides[took.input].declared.window, took.row.t
        return all(
            other.closed(took.key)
            or (window is not None and t is not None and self.watermarks[m] > t + window)
            for m, other in enumerate(self.sides)
            if m != took.input
        )

    # Punctuations and time

    def _close(self, i: int, says: list[Closure]) -> None:
        side, named = self.sides[i], set()
        known = self._known()
        wide = [list(each.wide) for each in self.sides]  # before these punctuations
        for punctuation in says:
            if punctuation.key is None:
                side.wide.append(punctuation.patterns)
                side.single = {
                    key: at for key, at in side.single.items() if not covers(punctuation.patterns, key)
                }
                side.partial_punctuations = {
                    each for each in side.partial_punctuations if not wider(punctuation.patterns, each[0])
                }
        for punctuation in says:
            if punctuation.key is not None:
                if all(any(covers(one, punctuation.key) for one in each) for each in wide):
                    continue  # it is over, and nothing is new of it
                named.add(punctuation.key)
                side.drop_partial(punctuation.key)
                if not side.closed(punctuation.key):
                    side.single[punctuation.key] = self._latest(i)
        if says:
            self._settle(known | named)

    def _control(self) -> bool:
        """Punctuations of control sources act once their input's watermark is past them, or it ended."""
        acted = False
        for i, side in enumerate(self.sides):
            due = [each for each in side.waiting if self.watermarks[i] > each[0] or side.ended]
            side.waiting = [each for each in side.waiting if each not in due]
            self._close(i, [punctuation for _, punctuation in due])
            acted = acted or bool(due)
        return acted

    def _known(self) -> set[Key]:
        """Keys of which something is remembered."""
        known = set(self.propagated)
        for side in self.sides:
            known |= {*side.single, *side.seen, *side.live}
        if self.script.settings.group:
            known |= {key for key, epoch in self.result_keys() if epoch > self.finished.get(key, -1)}
        return known

    def result_keys(self) -> set[tuple[Key, int]]:
        """Keys with results so far, and their epochs."""
        if self.script.settings.forgets_matched:
            return self.alone_keys
        matched = {(took.key, took.epoch) for took in self.took if took.input == 0 and self._matched(took)}
        return self.alone_keys | matched

    def _settle(self, keys: set[Key]) -> None:
        """Drop what is useless of these keys, propagate what is finished, forget what is closed."""
        for key in keys:
            for side in self.sides:
                held = side.live.pop(key, [])
                if left := [took for took in held if not self._useless(took)]:
                    side.live[key] = left
                for took in held:
                    if took not in left:
                        self._leave(took)
            closed = [side.closed(key) for side in self.sides]
            done = [shut and key not in side.live for shut, side in zip(closed, self.sides, strict=True)]
            if not all(closed) and not any(done):
                continue
            for side in self.sides:
                for took in side.live.pop(key, []):
                    self._leave(took)
            finished = all(closed[i] for i in self.script.settings.preserved)
            if finished and key not in self.propagated:
                if self.script.settings.propagate:
                    self.over.append((key, self.epoch[key]))
                self.propagated[key] = max(map(self._latest, range(len(self.sides))))
                self.finished[key] = self.epoch[key]
            if all(closed):
                self.propagated.pop(key, None)
                self.epoch[key] += 1
                for side in self.sides:
                    side.single.pop(key, None)
                    side.seen.pop(key, None)
                    side.drop_partial(key)
                    side.waiting = [each for each in side.waiting if each[1].key != key]

    def _advance(self, rows: dict[int, list[Row]], own_watermarks: dict[int, int]) -> None:
        """Event time moves after the whole batch."""
        for i, side in enumerate(self.sides):
            if times := self._times(i, rows):
                side.own = max(side.own, max(times) - (side.declared.lateness or 0))
            side.own = max(side.own, own_watermarks.get(i, NEVER))
        watermarks = [side.own for side in self.sides]
        for _ in self.sides:
            for i, side in enumerate(self.sides):
                others = [watermarks[m] for m, other in enumerate(self.sides) if m != i and not other.ended]
                if side.declared.idle is not None and others and min(others) > NEVER:
                    watermarks[i] = max(watermarks[i], min(others) - side.declared.idle)
        self.watermarks = list(map(max, self.watermarks, watermarks))  # time never runs backwards
        known = self._known()
        for side in self.sides:
            for key, held in list(side.live.items()):
                for took in [each for each in held if self._expired(each) and not self._useless(each)]:
                    held.remove(took)
                    self._lose(took)
                if not held:
                    del side.live[key]
        self._settle(known)

    def _times(self, i: int, rows: dict[int, list[Row]]) -> list[int]:
        """The event times of an input's data rows."""
        declared = self.sides[i].declared
        if declared.time is None:
            return []
        marked = declared.punctuation == "marked"
        return [row.t for row in rows.get(i, []) if row.t is not None and not (marked and row.flag)]

    def _latest(self, i: int) -> int:
        """The greatest event time that an input has reached."""
        return max(self.sides[i].reached, self.watermarks[i])

    def _forget(self) -> None:
        """Where every input has a window: forget keys that one closed, once nothing that is in time could
        have met its tuples. A preserved pair of inputs must both have closed a key to finish it. PWJoin
        remembers keys until all have closed them.
        """
        windows = [side.declared.window for side in self.sides]
        if (
            self.script.settings.operator == "pwjoin"
            or None in windows
            or len(self.script.settings.preserved) > 1
        ):
            return
        forgotten: set[Key] = set()
        for i, side in enumerate(self.sides):
            for closed in (side.single, side.seen):
                for key, at in list(closed.items()):
                    if key not in side.live and self._past(i, at):
                        del closed[key]
                        forgotten.add(key)
        for key in forgotten:
            self.epoch[key] += 1
            if not any(key in side.single or key in side.seen for side in self.sides):
                self.propagated.pop(key, None)  # a row of it is a new key's
        everyone = range(len(self.sides))
        self.propagated = {
            key: at
            for key, at in self.propagated.items()
            if not all(self._past(i, at) for i in everyone)
            or any(key in side.single or key in side.seen for side in self.sides)
        }

    def _past(self, i: int, at: int) -> bool:
        """Whether all watermarks are past what tuples of input i until a time could match."""
        window = self.sides[i].declared.window or 0
        return all(
            side.ended or (mark > NEVER and mark > at + (0 if m == i else window))
            for m, (side, mark) in enumerate(zip(self.sides, self.watermarks, strict=True))
        )

    # The answer

    def results(self, *, violators: bool = False) -> Counter[tuple[int, Ids]]:
        """The batch join of the rows that took part: the operation it belongs to, and the ids.

        With `violators`, of all rows that took part, whatever their epoch.
        """
        by_key: dict[Any, list[list[Took]]] = {}
        for took in self.took:
            if violators or not took.violates:
                group = took.key if violators else (took.key, took.epoch)
                by_key.setdefault(group, [[] for _ in self.sides])[took.input].append(took)
        found = Counter(self.alone)
        if self.script.settings.forgets_matched:
            return found
        for sides in by_key.values():
            for parts in itertools.product(*sides):
                if self._valid(parts):
                    found[max(t.operation for t in parts), tuple(t.row.id for t in parts)] += 1
        return found


def inside_windows(inputs: Sequence[Input], rows: Sequence[Row]) -> bool:
    """Whether each component is in its window when the latest one comes."""
    if all(one.window is None for one in inputs):
        return True
    latest = max(row.t or 0 for row in rows)
    return all(
        one.window is None or latest - (row.t or 0) <= one.window
        for one, row in zip(inputs, rows, strict=True)
    )


def alone(took: Took, script: Script) -> Ids:
    """The ids of a result of one tuple: None for the others whose columns leave."""
    if script.settings.forgets_matched:
        return (took.row.id,)
    return tuple(took.row.id if i == took.input else None for i in range(len(script.inputs)))


def batch_join(inputs: Sequence[Input], settings: Settings, rows: Sequence[Sequence[Row]]) -> Counter[Ids]:
    """Ids of all combinations of rows, one of each input, with one key and inside all windows; and
    what the type of join makes of them."""
    by_key: dict[Key, list[list[Row]]] = {}
    for i, row in ((i, row) for i, each in enumerate(rows) for row in each if None not in row.key):
        by_key.setdefault(key_of(row), [[] for _ in rows])[i].append(row)
    combinations = [
        tuple(row.id for row in parts)
        for sides in by_key.values()
        for parts in itertools.product(*sides)
        if inside_windows(inputs, parts) and passes(settings, [row.id for row in parts])
    ]
    left = {ids[0] for ids in combinations}
    if settings.how == "left_semi":
        return Counter((row.id,) for row in rows[0] if row.id in left)
    if settings.how == "left_anti":
        return Counter((row.id,) for row in rows[0] if row.id not in left)
    found: Counter[Ids] = Counter(combinations)
    for i in settings.preserved:
        matched = {ids[i] for ids in combinations}
        found.update(
            tuple(row.id if m == i else None for m in range(len(inputs)))
            for row in rows[i]
            if row.id not in matched
        )
    return found


def _order(row: Row) -> tuple[Any, ...]:
    """Of two rows of a unique key the earlier stays, then the smaller."""
    return (rank(row.t), rank(row.x), row.id)
