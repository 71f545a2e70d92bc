"""A join without one common key as operators over operators, and the plan of each of them.

A `Tree` is an input, or an operator over trees that share exactly the classes of its key, pairwise. Worked
case: a.x = b.x and b.y = c.y is (a ⋈x b) ⋈y c or a ⋈x (b ⋈y c). `grow` gives every way to begin or go on:
as many inputs as possible in one operator. `Planner` makes the plans from the leaves up.

What is declared of an input beside its times is about its `key=`. In an operator with the same key it is
used as it is. In another, unique= and arrival= say nothing, and of its promises those count that leave open
all columns but the operator's key: `<5, *>` of (x, y) where x is joined.

Results on their way into the next operator carry what the whole result needs and, where event time counts,
the two stamps that keep windows exact (`columnar.window`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import pyarrow as pa

from streamjoin.declare.stream import Control, Inner, Marked, Stream
from streamjoin.join.strategies.spill import SpillAbove
from streamjoin.plan.graph.edges import STAMPS, Graph
from streamjoin.plan.planner import JoinOptions, Part, Plan, plan_join

Keys = tuple[tuple[int, ...], ...]  # of several operators, by classes

# What the results of a plan are as an input with this key: what is taken over, and on Spark their DataFrame.
Lift = Callable[[Plan, tuple[str, ...]], tuple[Inner, Any]]


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


def grow(units: frozenset[Tree]) -> list[Tree]:
    """The operators that can come next: as many units as share exactly one key, pairwise."""
    found: list[Tree] = []
    for size in range(len(units), 1, -1):
        for group in combinations(sorted(units, key=lambda unit: unit.inputs), size):
            shared = {one.classes & other.classes for one, other in combinations(group, 2)}
            (key, *more) = shared
            if key and not more and not any(set(group) < set(known.parts) for known in found):
                found.append(_over(group, key))
    return found


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
                below = self._plan(part, names, (tree.key, *above), last=False)
                streams.append(self.results(part, below, (tree.key, *above)))
                columns += streams[-1].payload
            else:
                streams.append(self.leaf(part.inputs[0], tree.key, above))
                columns += self._named(part.inputs[0], streams[-1].payload)
        shown = tuple(self.graph.names.values()) if last else None
        options = replace(self.options, name=names[tree], zoned=_zoned(self.graph.streams))
        if not last:
            options = replace(options, where=None)
        part_of = Part(tuple(columns), () if last else self.stamps(tree), shown)
        return replace(plan_join(streams, options, part_of), steps=(f"part of join {self.options.name}",))

    def leaf(self, number: int, key: tuple[int, ...], above: Keys) -> Stream:
        """An input as the operator with this key sees it."""
        stream = self.graph.streams[number]
        classes = self.graph.classes
        columns = tuple(classes[each].columns[number] for each in key)
        further = [classes[each].columns[number] for each in sorted(self.graph.of_input(number) - {*key})]
        seen = replace(stream, key=columns, columns=(*further, *self.graph.others(number)))
        if set(columns) == set(stream.key):
            return _reordered(seen, stream)
        marked = stream.punctuation if isinstance(stream.punctuation, Marked) else None
        inner = None if stream.inner is None else replace(stream.inner, places=None)
        changed = replace(
            seen, unique=False, arrival=None, punctuation=marked, punctuated=stream.key, inner=inner
        )
        named = {
            i: one.columns[number] for i, one in enumerate(classes) if one.columns.get(number) in stream.key
        }
        return self._carrying(changed, named, above)

    def _carrying(self, stream: Stream, named: dict[int, str], above: Keys) -> Stream:
        """With what promises that name these classes can say to later operators."""
        later = [tuple(named[each] for each in key) for key in above if named.keys() >= {*key}]
        useful = tuple(names for names in later if not set(names) <= set(stream.key))
        if not useful or not self.options.propagate:
            return stream
        forwarded = tuple(dict.fromkeys(name for names in useful for name in names if name not in stream.key))
        return replace(stream, forwarded=forwarded, later=useful)

    def results(self, tree: Tree, plan: Plan, keys: Keys) -> Stream:
        """The results of an operator as an input of the one with the first key; the others follow later."""
        key, above = keys[0], keys[1:]
        columns = tuple(self.graph.class_name(each) for each in key)
        below = [self.graph.streams[i] for i in tree.inputs]
        windows = [stream.window_us for stream in below if stream.window_us is not None]
        stamps = plan.spec.stamps
        inner, frame = self.lift(plan, columns)
        passes = self._passes(tree, plan, key)
        stream = Stream(
            plan.options.name,
            plan.spec.emits,
            columns,
            time=stamps[0] if stamps else None,
            window_us=min(windows, default=None),
            lateness_us=0 if len(stamps) == 2 else None,
            on_violation="keep" if any(stream.on_violation == "keep" for stream in below) else "drop",
            stamps=stamps,
            inner=replace(inner, passes=passes),
            source=frame,
        )
        if not any(one.forwarded for one in plan.spec.inputs):
            return stream
        named = {each: self.graph.class_name(each) for each in tree.classes}
        stream = replace(stream, punctuated=columns)
        carrying = self._carrying(stream, named, above)
        return replace(carrying, punctuated=(*columns, *carrying.forwarded))

    def _passes(self, tree: Tree, plan: Plan, key: tuple[int, ...]) -> str | None:
        """Whose promises close keys of the results: an input's that can name just these columns.

        They go on when its tuples have gone, so those must be bounded.
        """
        for part, stream, bound in zip(tree.parts, plan.streams, plan.bounds, strict=True):
            if not (bound.tuples and stream.forwarded and stream.uses_punctuations):
                continue
            if part.parts:
                inner: Inner = stream.inner  # type: ignore[assignment]  # what is below an operator is one
                found = self._passes(part, inner.plan, key)
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
            return STAMPS
        return STAMPS[:1] if any(self.graph.streams[i].time is not None for i in tree.inputs) else ()

    def _named(self, number: int, columns: Iterable[str]) -> list[str]:
        """The names in the result of an input's columns."""
        of_class = {one.columns.get(number): i for i, one in enumerate(self.graph.classes)}
        return [
            self.graph.class_name(of_class[name]) if name in of_class else self.graph.names[number, name]
            for name in columns
        ]


def _can_name(stream: Stream, columns: set[str | None]) -> bool:
    """Whether a marked row can name just these columns."""
    source, known = stream.punctuation, {*stream.speaks_of}
    return isinstance(source, Marked) and (columns == known or (columns < known and source.null_is_wildcard))


def _reordered(seen: Stream, declared: Stream) -> Stream:
    """With the places of what it takes over from a join in the order of its key here."""
    inner = declared.inner
    if inner is None or inner.places is None:
        return seen
    place = dict(zip(declared.key, inner.places, strict=True))
    return replace(seen, inner=replace(inner, places=tuple(place[name] for name in seen.key)))


def _zoned(streams: Iterable[Stream]) -> bool:
    """Whether some event time is an instant."""
    types = []
    for stream in streams:
        types += [] if stream.time is None else [stream.type_of(stream.time)]
        source = stream.punctuation
        types += [source.type_of(source.time)] if isinstance(source, Control) else []
    return any(pa.types.is_timestamp(dtype) and dtype.tz is not None for dtype in types)


def shared_memory(options: JoinOptions, operators: int) -> JoinOptions:
    """The same for each operator, with its share of the memory."""
    if options.memory is None or operators == 1:
        return options
    given = options.memory
    spill = given if isinstance(given, SpillAbove) else SpillAbove(given, defer=options.operator == "xjoin")
    share = SpillAbove(max(1, spill.limit_bytes // operators), flush=spill.flush, defer=spill.defer)
    return replace(options, memory=share)
