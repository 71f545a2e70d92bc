"""What must hold after each operation of a script, and at its end.

Each check has a name, so that a test of a planted bug can say which check found it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from streamjoin.punctuation import Punctuation
from streamjoin.state import run
from tests.simulation.elements import covers
from tests.simulation.naive import Ids, Naive, Took
from tests.simulation.play import Emitted, Player, speaks_of
from tests.simulation.script import Finish, Script


class Failed(AssertionError):
    """A script whose run broke a rule: which check saw it, at which operation, and how."""

    def __init__(self, name: str, operation: int, says: str) -> None:
        super().__init__(f"{name}, operation {operation}: {says}")
        self.check = name


def check(script: Script) -> None:
    """Play a script in the library and in the model; raise `Failed` at the first difference.

    Runs of three rows are long here, so that they are indexed too.
    """
    with patch.object(run, "_SHORT_ROWS", 2):
        _Checker(script).run()


def verdict(script: Script) -> Failed | None:
    """The failure of a script, None where all is well. A crash of the library is one too."""
    try:
        check(script)
    except Failed as failed:
        return failed
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return Failed("crash", -1, f"{type(error).__name__}: {error}")
    return None


class _Checker:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.player = Player(script)
        self.model = Naive(script)
        self.at = -1
        self.found: Counter[tuple[int, Ids]] = Counter()
        self.by_id: dict[int, Took] = {}
        self.over: set[tuple[Any, int]] = set()
        self.wide: list[Punctuation] = []
        self.unkeyed_over = False
        self.propagated = 0
        self.keeps = any(one.on_violation == "keep" for one in script.inputs)

    def run(self) -> None:
        for operation in self.script.operations:
            self.at += 1
            emitted = self.player.do(operation)
            known = len(self.model.took)
            self.model.play(operation, emitted.turns)
            self.by_id.update({took.row.id: took for took in self.model.took[known:]})
            self.by_id.update({took.row.id: took for took in self.model.unkeyed})
            self._expect("snapshot", emitted.restored_as_it_was, "a restored run has another snapshot")
            self._violations(emitted)
            self._events(emitted)
            summary = self.player.run.state()
            self._state(summary.rows)
            if self.script.settings.group:
                self._groups_held()
            self._counters(list(summary.rows))
            if isinstance(operation, Finish):
                self._expect("empty at the end", not any(summary.rows.values()), "rows are left")
        self._results()

    def _expect(self, name: str, holds: bool, says: str) -> None:
        if not holds:
            raise Failed(name, self.at, says)

    def _same(self, name: str, found: Any, wanted: Any, what: str) -> None:
        if found != wanted:
            raise Failed(name, self.at, f"{what}: the library has {found}, the model {wanted}")

    def _violations(self, emitted: Emitted) -> None:
        self._same("violations", sorted(emitted.violations), sorted(self.model.violations), "violations")

    def _events(self, emitted: Emitted) -> None:
        """Results and propagated keys, in the order in which they were emitted."""
        due: dict[Any, list[int]] = {}
        for key, epoch in self.model.over:
            due.setdefault(key, []).append(epoch)
        groups: dict[Any, Any] = {}
        for event in emitted.events:
            if event[0] == "over":
                self.propagated += 1
                self._expect(
                    "propagated once", bool(due.get(event[1])), f"{event[1]} is propagated again or too early"
                )
                self._finished(event[1], due[event[1]].pop(0), groups.pop(event[1], None))
            elif event[0] == "group":
                self._expect("groups", event[1] not in groups, f"two rows of group {event[1]}")
                groups[event[1]] = tuple(event[2:])
            elif event[0] == "wide":
                again = [one for one in self.wide if one.covers(event[1])]
                self._expect("ranges", not again, f"{event[1]} is propagated again, or after {again}")
                self.wide.append(event[1])
            else:
                self._row(*event[1:])
        self._unkeyed_groups(groups)
        missing = [key for key, epochs in due.items() if epochs]
        self._expect("propagated", not missing, f"finished but not propagated: {missing}")
        self._ranges()

    def _ranges(self) -> None:
        """What ranges and patterns of all inputs cover was propagated so, and nothing else. When all have
        ended, nothing is propagated any more but keys."""
        settings = self.script.settings
        if settings.defer or all(side.ended for side in self.model.sides):
            return
        for key in {took.key for took in self.model.took}:
            said = [one for one in self.wide if speaks_of(one, key)]
            everywhere = all(any(covers(one, key) for one in side.wide) for side in self.model.sides)
            self._expect("ranges", everywhere or not said, f"{said} speak of {key}, which may still come")
            if settings.propagate and settings.purge != "none":
                self._expect("ranges", bool(said) or not everywhere, f"none was propagated that has {key}")

    def _finished(self, key: Any, last: int, found: Any) -> None:
        """A key is over, and those of its epochs that are not yet; their results are the final row of its
        group, which there is none of where there are none.
        """
        epochs = {(key, epoch) for epoch in range(last + 1)} - self.over
        self.over |= epochs
        if self.script.settings.group:
            members = [took.row.id for took in self.by_id.values() if (took.key, took.epoch) in epochs]
            self._same_group(key, found, members)

    def _same_group(self, key: Any, found: Any, members: list[int]) -> None:
        results = Counter(
            {
                result: count
                for result, count in self.model.results().items()
                if any(each in members for each in result[1])
            }
        )
        lists = zip(*(ids for _, ids in results.elements()), strict=True)
        wanted = (results.total(), [sorted(each for each in ids if each is not None) for ids in lists])
        self._same("groups", found, wanted if results else None, f"the row of group {key}")

    def _unkeyed_groups(self, groups: dict[Any, Any]) -> None:
        """Rows with null keys are grouped too, final once all inputs that bring them have ended."""
        preserved = [self.model.sides[i] for i in self.script.settings.preserved]
        if self.script.settings.group and not self.unkeyed_over and all(side.ended for side in preserved):
            self.unkeyed_over = True
            members: dict[Any, list[int]] = {}
            for took in self.model.unkeyed:
                members.setdefault(took.key, []).append(took.row.id)
            for key, ids in members.items():
                self._same_group(key, groups.pop(key, None), ids)
        self._same("groups", groups, {}, "groups that are not over")

    def _groups_held(self) -> None:
        wanted = {key for key, epoch in self.model.result_keys() if (key, epoch) not in self.over}
        if not self.unkeyed_over:
            wanted |= {took.key for took in self.model.unkeyed}
        self._same("groups held", self.player.groups(), wanted, "groups that are not final")

    def _row(self, key: Any, ids: Ids, xs: tuple[Any, ...]) -> None:
        self.found[self.at, ids] += 1
        there = [i for i, each in enumerate(ids) if each is not None]
        parts = [self.by_id.get(ids[i] or 0) for i in there]
        self._expect("results", None not in parts, f"a result of rows that took no part: {ids}")
        said = [(part.key, part.row.x) for part in parts if part is not None]
        self._same("columns", [(key, xs[i]) for i in there], said, f"keys and columns of result {ids}")
        padding = [x for i, x in enumerate(xs) if i not in there]
        self._same("columns", padding, [None] * len(padding), f"padding of result {ids}")
        if not self.keeps and (-1, 0) not in key:
            said = [one for one in self.wide if speaks_of(one, key)]
            self._expect(
                "no result after its punctuation", not said, f"result {ids} of key {key} after {said}"
            )
        if not self.keeps:
            spent = [part for part in parts if part and (part.key, part.epoch) in self.over]
            self._expect("no result after its punctuation", not spent, f"result {ids} of key {key}")

    def _state(self, gauges: Mapping[str, int]) -> None:
        for i, side in enumerate(self.model.sides):
            found = self.player.live_ids(i)
            self._same("state", found, side.live_ids, f"ids held of input {i}")
            self._same("gauge", list(gauges.values())[i], len(found), f"state().rows of input {i}")
            wanted = (len(side.single), len(side.seen), len(side.partial_punctuations), len(side.waiting))
            self._same("stored punctuations", self.player.remembered(i), wanted, f"single keys of input {i}")
        known = len(self.player.run.join.state.propagated)
        self._same("stored punctuations", known, len(self.model.propagated), "propagated keys")

    def _counters(self, names: list[str]) -> None:
        counters = self.player.run.counters()
        # a row that no row to come can match is not stored, wherever in its batch it stands
        by_turn = ("stored", "not_stored", "expired") if self.script.settings.within else ()
        compared = [what for what in COMPARED if what not in by_turn]
        for name, side in zip(names, self.model.sides, strict=True):
            counts = {what: counters[f"{name}_{what}"] for what in COUNTED}
            too_old = side.counts["too_old"]  # when they came
            went = counts["null_keys"] + side.counts["refused"] + counts["stored"] + counts["not_stored"]
            if self.script.settings.within:  # or they were useless, which is no loss
                too_old = counts["rows"] - went
            self._same("counters", counts["rows"], went + too_old, f"rows of {name} and where they went")
            left = counts["stored"] - counts["purged"] - counts["invalidated"] - (counts["expired"] - too_old)
            self._same("counters", left, len(side.live_ids), f"rows of {name} stored and not gone")
            for what in compared:
                self._same("counters", counts[what], side.counts[what], f"{name}_{what}")
        if not self.script.settings.group:
            self._same("counters", counters["results"], self.found.total(), "results")
        self._same("counters", counters["propagated_keys"], self.propagated, "propagated_keys")

    def _results(self) -> None:
        least = self.model.results()
        if self.script.settings.group:  # what left was compared as it left, what is held after each operation
            counted = self.player.run.counters()["results"]
            self._same("counters", counted, least.total(), "results")
            return
        if not self.keeps:
            self._expect("results", self.found == least, _difference(self.found, least))
            return
        most = self.model.results(violators=True)
        self._expect("results", least <= self.found, "missing " + _difference(self.found, least))
        self._expect("results", self.found <= most, "too many " + _difference(self.found, most))


REASONS = ("null_time", "late", "duplicate_key", "after_punctuation", "null_punctuation")
COMPARED = ("rows", "null_keys", "stored", "not_stored", "expired", "control_rows_with_data", *REASONS)
COUNTED = (*COMPARED, "purged", "invalidated")


def _difference(found: Counter[Any], wanted: Counter[Any]) -> str:
    more, less = sorted((found - wanted).items()), sorted((wanted - found).items())
    return f"results as (operation, ids): only the library has {more}, only the model has {less}"
