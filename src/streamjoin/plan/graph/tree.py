"""Operator tree: a join without one common key as operators over operators, and the plan of each.

A `Tree` is an input, or an operator over trees that share exactly the classes of its key, pairwise. Worked
case: a.x = b.x and b.y = c.y is (a ⋈x b) ⋈y c or a ⋈x (b ⋈y c). `grow` gives every way to begin or go on:
as many inputs as possible in one operator. `Planner` makes the plans from the leaves up.

Constraints on an input other than its times are on its `key=`. In an operator with the same key they
apply as they are. In another, unique= and arrival= do not apply, and a punctuation closes keys if it has
wildcards for all columns but the operator's key: `<5, *>` of (x, y) where x is joined.

Results on their way into the next operator have the columns that the whole result needs and, where event
time counts, the two stamps that keep windows exact (`columnar.window`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Any

import pyarrow as pa

from streamjoin.declare.stream import Stream
from streamjoin.declare.upstream import UpstreamJoin
from streamjoin.join.join_type import INNER
from streamjoin.join.strategies.spill import SpillAbove
from streamjoin.plan.graph.edges import Graph
from streamjoin.plan.planner import JoinOptions, OperatorColumns, Plan, plan_join

Keys = tuple[tuple[int, ...], ...]  # of several operators, by classes

# The results of a plan as an input with this key: the upstream join, and on Spark their DataFrame.
Lift = Callable[[Plan, tuple[str, ...]], tuple[UpstreamJoin, Any]]


@dataclass(frozen=True)
class Tree:
    """The inputs of a subtree, the classes they have, and below them the operator that joins them."""

    inputs: tuple[int, ...]
    classes: frozenset[int]
    key: tuple[int, ...] = ()  # of the operator; none for an input
    parts: tuple[Tree, ...] = ()

    def operators(self) -> Iterator[Tree]:
        """All operators, each after those below it."""
        for part in self.parts:
            yield from part.operators()
        if self.parts:
            yield self


def leaves(graph: Graph) -> frozenset[Tree]:
    """The inputs."""
    return frozenset(Tree((i,), graph.of_input(i)) for i in range(len(graph.streams)))


def grow(units: frozenset[Tree], *, most: int | None = None) -> list[Tree]:
    """The operators that can come next: as many units as share exactly one key, pairwise.

    The largest first. At most so many of each key, where only some are wanted.
    """
    ordered = sorted(units, key=lambda unit: unit.inputs)
    members: dict[int, list[int]] = {}
    for i, unit in enumerate(ordered):
        for each in unit.classes:
            members.setdefault(each, []).append(i)
    pairs = {pair for sharing in members.values() for pair in combinations(sharing, 2)}
    sharing: dict[frozenset[int], dict[int, set[int]]] = {}  # by key: who shares exactly it with whom
    for one, other in pairs:
        with_whom = sharing.setdefault(ordered[one].classes & ordered[other].classes, {})
        with_whom.setdefault(one, set()).add(other)
        with_whom.setdefault(other, set()).add(one)
    found = [
        (tuple(sorted(group)), key)
        for key, with_whom in sharing.items()
        for group in islice(_maximal(set(), set(with_whom), set(), with_whom), most)
    ]
    found.sort(key=lambda each: (-len(each[0]), each[0]))
    return [_over(tuple(ordered[i] for i in group), key) for group, key in found]


def all_in_one(units: frozenset[Tree]) -> list[Tree]:
    """The one operator of all units, if they share exactly one key, pairwise."""
    group = tuple(sorted(units, key=lambda unit: unit.inputs))
    keys = {one.classes & other.classes for one, other in combinations(group, 2)}
    return [_over(group, key) for key in keys if key and len(keys) == 1]


def _maximal(
    group: set[int], rest: set[int], done: set[int], sharing: Mapping[int, set[int]]
) -> Iterator[set[int]]:
    """The groups that no unit can be added to, each once (Bron and Kerbosch, with a pivot).

    `rest` may be added to the group; groups with one of `done` were given before.
    """
    if not rest and not done:
        yield group
    if not rest:
        return
    pivot = max(sorted(rest | done), key=lambda one: len(rest & sharing[one]))
    for one in sorted(rest - sharing[pivot]):
        yield from _maximal(group | {one}, rest & sharing[one], done & sharing[one], sharing)
        rest = rest - {one}
        done = done | {one}


def _over(group: tuple[Tree, ...], key: Iterable[int]) -> Tree:
    inputs = tuple(sorted(i for part in group for i in part.inputs))
    return Tree(inputs, frozenset().union(*(part.classes for part in group)), tuple(sorted(key)), group)


@dataclass(frozen=True)
class Planner:
    """Makes plans of trees over the inputs of a graph."""

    graph: Graph
    options: JoinOptions
    lift: Lift

    def plan(self, tree: Tree, name: str, *, last: bool) -> Plan:
        """The plan of an operator; those below it have the names `<name of the join>_<number>`."""
        names = {below: f"{self.options.name}_{n}" for n, below in enumerate(tree.operators(), 1)}
        return self._plan(tree, {**names, tree: name}, (), last=last)

    def _plan(self, tree: Tree, names: dict[Tree, str], above: Keys, *, last: bool) -> Plan:
        """The plan of an operator; `above` are the keys of those that its results go through."""
        streams, columns = [], [self.graph.class_name(number) for number in tree.key]
        for part in tree.parts:
            if part.parts:
                below = self.lower(part, names, (tree.key, *above))
                streams.append(self.results(part, below, (tree.key, *above)))
                columns += streams[-1].payload
            else:
                streams.append(self.leaf(part.inputs[0], tree.key, above))
                named = self.graph.named[part.inputs[0]]
                columns += [named[name] for name in streams[-1].payload]
        shown = tuple(self.graph.names.values()) if last else None
        options = replace(self.options, name=names[tree], zoned=_zoned(self.graph.streams))
        if not last:
            options = replace(options, where=None, how=INNER.name)
        qualified = {
            (self.graph.streams[i].name, name): shown_as
            for i in tree.inputs
            for name, shown_as in self.graph.named[i].items()
        }
        part_of = OperatorColumns(tuple(columns), () if last else self.stamps(tree), shown, qualified)
        return replace(plan_join(streams, options, part_of), steps=(f"part of join {self.options.name}",))

    def lower(self, tree: Tree, names: dict[Tree, str], above: Keys) -> Plan:
        """The plan of an operator whose results go on."""
        return self._plan(tree, names, above, last=False)

    def leaf(self, number: int, key: tuple[int, ...], above: Keys) -> Stream:
        """An input as the operator with this key sees it."""
        stream = self.graph.streams[number]
        classes = self.graph.classes
        columns = tuple(classes[each].columns[number] for each in key)
        further = [classes[each].columns[number] for each in sorted(self.graph.of_input(number) - {*key})]
        seen = replace(stream, key=columns, columns=(*further, *self.graph.others(number)))
        if set(columns) == set(stream.key):
            return _reordered(seen, stream)
        source = stream.punctuation
        changed = replace(
            seen,
            unique=False,
            arrival=None,
            punctuation=source if source is not None and source.has_own_rows else None,
            punctuation_key=stream.key,
            upstream=None if stream.upstream is None else replace(stream.upstream, key_positions=None),
        )
        named = {
            i: one.columns[number] for i, one in enumerate(classes) if one.columns.get(number) in stream.key
        }
        return self._forwarding(changed, named, above)

    def _forwarding(self, stream: Stream, named: dict[int, str], above: Keys) -> Stream:
        """With the keys of later operators that punctuations naming these classes can close."""
        later = [tuple(named[each] for each in key) for key in above if named.keys() >= {*key}]
        useful = tuple(names for names in later if not set(names) <= set(stream.key))
        if not useful or not self.options.propagate:
            return stream
        forwarded = tuple(dict.fromkeys(name for names in useful for name in names if name not in stream.key))
        return replace(stream, forwarded=forwarded, later_keys=useful)

    def results(self, tree: Tree, plan: Plan, keys: Keys) -> Stream:
        """The results of an operator as an input of the one with the first key; the others follow later."""
        key, above = keys[0], keys[1:]
        columns = tuple(self.graph.class_name(each) for each in key)
        below = [self.graph.streams[i] for i in tree.inputs]
        windows = [stream.window_us for stream in below if stream.window_us is not None]
        stamps = plan.spec.stamps
        upstream, frame = self.lift(plan, columns)
        propagates = self._propagates(tree, plan, key)
        stream = Stream(
            plan.options.name,
            plan.spec.emits,
            columns,
            time=stamps[0] if stamps else None,
            window_us=min(windows, default=None),
            lateness_us=0 if len(stamps) == 2 else None,
            on_violation="keep" if any(stream.on_violation == "keep" for stream in below) else "drop",
            stamps=stamps,
            upstream=replace(upstream, propagates=propagates),
            source=frame,
        )
        if not any(one.forwarded for one in plan.spec.inputs):
            return stream
        named = {each: self.graph.class_name(each) for each in tree.classes}
        stream = self._forwarding(replace(stream, punctuation_key=columns), named, above)
        return replace(stream, punctuation_key=(*columns, *stream.forwarded))

    def _propagates(self, tree: Tree, plan: Plan, key: tuple[int, ...]) -> str | None:
        """Which punctuations close keys of the results: those of an input that can name just these columns.

        They are propagated when its tuples are evicted, so these must be bounded.
        """
        for part, stream, bound in zip(tree.parts, plan.streams, plan.bounds, strict=True):
            if not (bound.tuples and stream.forwarded and stream.uses_punctuations):
                continue
            if part.parts:
                upstream: UpstreamJoin = stream.upstream  # type: ignore[assignment]  # an operator's result
                found = self._propagates(part, upstream.plan, key)
                if found is not None:
                    return found
                continue
            columns = {self.graph.classes[each].columns.get(part.inputs[0]) for each in key}
            if _can_name(stream, columns):
                return f"punctuations of {stream.name}"
        return None

    def stamps(self, tree: Tree) -> tuple[str, ...]:
        """The stamps of an operator's results: both where a window counts, else the time if there is one."""
        if any(stream.window_us is not None for stream in self.graph.streams):
            return self.graph.stamps
        timed = any(self.graph.streams[i].time is not None for i in tree.inputs)
        return self.graph.stamps[:1] if timed else ()


def _can_name(stream: Stream, columns: set[str | None]) -> bool:
    """Whether a punctuation row can name just these columns."""
    source, known = stream.punctuation, {*stream.punctuated_columns}
    if source is None or not source.has_own_rows:
        return False
    return columns == known or (columns < known and source.null_is_wildcard)


def _reordered(seen: Stream, declared: Stream) -> Stream:
    """With the key positions of its upstream join in the order of its key here."""
    upstream = declared.upstream
    if upstream is None or upstream.key_positions is None:
        return seen
    position = dict(zip(declared.key, upstream.key_positions, strict=True))
    positions = tuple(position[name] for name in seen.key)
    return replace(seen, upstream=replace(upstream, key_positions=positions))


def _zoned(streams: Iterable[Stream]) -> bool:
    """Whether some event time is an instant."""
    types = []
    for stream in streams:
        types += [] if stream.time is None else [stream.type_of(stream.time)]
        control = stream.control
        types += [] if control is None else [control.type_of(control.time)]
    return any(pa.types.is_timestamp(dtype) and dtype.tz is not None for dtype in types)


def shared_memory(options: JoinOptions, operators: int) -> JoinOptions:
    """The same for each operator, with its share of the memory."""
    if options.memory is None or operators == 1:
        return options
    given = options.memory
    spill = given if isinstance(given, SpillAbove) else SpillAbove(given, defer=options.operator == "xjoin")
    share = SpillAbove(max(1, spill.limit_bytes // operators), flush=spill.flush, defer=spill.defer)
    return replace(options, memory=share)
