"""Join ordering: the tree of operators of a join without one common key, chosen by estimated cost.

The cost is lexicographic: inputs of all operators whose tuples are not bounded, then inputs whose closed
keys are not, then rows: those stored an hour after the start (`plan.cost`) and the intermediate results
of that hour. All trees are compared for up to six inputs; beyond, the cheapest
next operator is taken each time.

A left join is `a left join (b join c …)`: its first input enters the last operator, over the complete rows of
the others, which must be connected without it.

An operator is expected to give keys/s × the rows per key of each input, with the keys/s of the input that
has fewest. Worked number: 1 order a second with 1 row per key and 10 lines a second with 10 give 10 rows a
second, 36,000 in an hour. Where no rate is given it is assumed to be one key a second on every input, with
one row where its key is unique and 10 rows within 10 minutes where not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from streamjoin.declare.stream import Stream
from streamjoin.declare.upstream import UpstreamJoin
from streamjoin.errors import InvalidJoin
from streamjoin.join.join_type import INNER, join_type
from streamjoin.plan.chain import upstream_of
from streamjoin.plan.cost import MOST, Rate, predict
from streamjoin.plan.graph.edges import Graph, check_connected_without, graph_of
from streamjoin.plan.graph.tree import Keys, Lift, Planner, Tree, all_in_one, grow, leaves, shared_memory
from streamjoin.plan.planner import JoinOptions, Plan, check_streams, check_times

ALL_TREES_UP_TO = 6  # inputs
_SOME = 16  # operators of one key that are compared, beyond
_HOUR_S = 3600
_DECLARED: dict[str, None] = {"punctuation": None, "arrival": None, "sequence": None}
_ASSUMED = (
    "no rates were given for {}: assumed one key a second, with one row where the key is unique and else 10 "
    "rows within 10 minutes; rates= says better"
)

Rates = Mapping[str, Rate | float]


@dataclass(frozen=True, order=True)
class Cost:
    """Inputs with unbounded tuples, inputs with unbounded closed keys, and rows; less is better."""

    unbounded: int = 0
    closed_keys: int = 0
    rows: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.unbounded + other.unbounded, self.closed_keys + other.closed_keys, self.rows + other.rows
        )

    def __str__(self) -> str:
        free = f"{self.unbounded} unbounded inputs, " if self.unbounded else ""
        return f"{free}{self.rows:,.0f} rows stored or emitted to the next operator in the first hour"


def plan_edges(
    streams: Sequence[Stream], on: Any, options: JoinOptions, rates: Rates | None, lift: Lift
) -> Plan:
    """Check the join and choose its operators; `lift` makes inputs of the results of lower ones."""
    check_streams(streams)
    options = replace(options, how=_checked_type(options.how))
    check_times(streams)
    graph = graph_of(streams, on, qualified=options.names == "qualified")
    if options.how != INNER.name:
        check_connected_without(graph, 0)
    check_rates(streams, rates)
    tree, why = _cheapest(graph, options, rates or {})
    return _planned(graph, tree, options, lift, (*why, *(_assumed(streams, rates or {}) if why else ())))


def forced(streams: Sequence[Stream], on: Any, options: JoinOptions, lift: Lift) -> Iterator[Plan]:
    """The join in every order there is; to compare them."""
    graph = graph_of(streams, on)
    for tree in all_trees(leaves(graph), options.how):
        yield _planned(graph, tree, options, lift, ())


def _checked_type(how: str) -> str:
    """The name of the join type, of those that joins on several keys have."""
    name = join_type(how, 2).name
    if name not in ("inner", "left"):
        raise InvalidJoin(
            f"how={how!r} with on=: joins on several keys are inner joins, or left joins that keep every row "
            "of the first input; give how='left' and the input to keep first, or leave on= out and join two "
            "by two"
        )
    return name


def _planned(graph: Graph, tree: Tree, options: JoinOptions, lift: Lift, why: tuple[str, ...]) -> Plan:
    operators = list(tree.operators())
    planner = Planner(graph, shared_memory(options, len(operators)), lift)
    plan = planner.plan(tree, options.name, last=True)
    names = [*(f"{options.name}_{n}" for n in range(1, len(operators))), options.name]
    steps = _steps(graph, dict(zip(operators, names, strict=True)), options.how)
    return replace(plan, steps=(*steps, *why))


def _steps(graph: Graph, names: Mapping[Tree, str], how: str) -> list[str]:
    """Which inputs share an operator, on which key, in order."""
    found = []
    for operator, name in names.items():
        parts = [names.get(part) or graph.streams[part.inputs[0]].name for part in operator.parts]
        inputs = " ⋈ ".join(parts)
        if how != INNER.name and len(operator.inputs) == len(graph.streams):
            others = " ⋈ ".join(parts[1:])
            inputs = f"{parts[0]} ⟕ {others if len(parts) == 2 else f'({others})'}"
        key = " and ".join(graph.equation(number, operator.inputs) for number in operator.key)
        found.append(f"{name}: {inputs} on {key}")
    return found


def _next(units: frozenset[Tree], how: str, most: int | None = None) -> list[Tree]:
    """The operators that can come next. The first input of a left join enters the last one only: it is
    padded where the others have no complete row for it.
    """
    if how == INNER.name:
        return grow(units, most=most)
    first = min(units, key=lambda unit: unit.inputs)
    return [*all_in_one(units), *grow(units - {first}, most=most)]


def all_trees(units: frozenset[Tree], how: str = INNER.name) -> list[Tree]:
    """Every tree over these units, each once."""
    seen: set[frozenset[Tree]] = set()
    found: list[Tree] = []

    def walk(units: frozenset[Tree]) -> None:
        if units in seen:
            return
        seen.add(units)
        if len(units) == 1:
            found.extend(units)
        for over in _next(units, how):
            walk((units - {*over.parts}) | {over})

    walk(units)
    return found


def _cheapest(graph: Graph, options: JoinOptions, rates: Rates) -> tuple[Tree, tuple[str, ...]]:
    """The tree to run, and why."""
    units = leaves(graph)
    costs = _costs(graph, options, rates)
    if len(units) > ALL_TREES_UP_TO:
        while len(units) > 1:
            over = min(_next(units, options.how, _SOME), key=lambda one: (costs(one), one.inputs))
            units = (units - {*over.parts}) | {over}
        (tree,) = units
        why = f"for more than {ALL_TREES_UP_TO} inputs the cheapest next operator is taken each time"
        return tree, (why,) if len(list(tree.operators())) > 1 else ()
    ranked = sorted(
        (
            (sum((costs(one) for one in tree.operators()), Cost()), i, tree)
            for i, tree in enumerate(all_trees(units, options.how))
        )
    )
    best, _, tree = ranked[0]
    if len(ranked) == 1:
        return tree, () if len(tree.parts) == len(graph.streams) else ("there is no other order",)
    if ranked[-1][0] == best:
        return tree, (f"all {len(ranked)} orders are estimated to cost the same: {best}",)
    dearer = next(cost for cost, *_ in ranked if cost != best)
    return tree, (f"the cheapest of {len(ranked)} orders by estimate: {best}; the next: {dearer}",)


@dataclass(frozen=True)
class _Estimating(Planner):
    """Plans trees that are compared, and each operator in them once: trees differ in a few operators."""

    planned: dict[Any, Plan] = field(default_factory=dict)
    given: dict[int, Rate] = field(default_factory=dict)  # what a plan is expected to give, by its id

    def lower(self, tree: Tree, names: dict[Tree, str], above: Keys) -> Plan:
        """The plan of an operator whose results go on, whatever the keys above that nothing names."""
        named = tuple(key for key in above if any(self._names(number, key) for number in tree.inputs))
        if (tree, named) not in self.planned:
            self.planned[tree, named] = super().lower(tree, names, above)
        return self.planned[tree, named]

    def _names(self, number: int, key: tuple[int, ...]) -> bool:
        """Whether punctuations of an input may name a later key."""
        columns = (self.graph.classes[each].columns.get(number) for each in key)
        return all(column in self.graph.streams[number].key for column in columns)

    def called(self, tree: Tree) -> str:
        """A name of its own in every tree: no two operators of one have the same inputs."""
        return "_".join((self.options.name, *map(str, tree.inputs)))

    def cost(self, tree: Tree, rates: Rates) -> Cost:
        """The cost of an operator without those below it."""
        last = len(tree.inputs) == len(self.graph.streams)
        names = {each: self.called(each) for each in tree.operators()}
        plan = self._plan(tree, names, (), last=last)
        expected = rates_of(plan, rates, self.given)
        rows = sum(one.rows for one in predict(plan, expected, "1 hour"))
        if not last:
            rows += _result(plan, expected).rows_per_second * _HOUR_S
        tuples = sum(not bound.tuples for bound in plan.bounds)
        return Cost(tuples, sum(not bound.closed_keys for bound in plan.bounds), rows)


def _costs(graph: Graph, options: JoinOptions, rates: Rates) -> Callable[[Tree], Cost]:
    """The cost of an operator without those below it."""
    bare = tuple(replace(stream, source=None) for stream in graph.streams)
    planner = _Estimating(replace(graph, streams=bare), replace(options, strict=False, memory=None), _alone)
    return cache(lambda tree: planner.cost(tree, rates))


def _alone(plan: Plan, key: tuple[str, ...]) -> tuple[UpstreamJoin, None]:
    """A plan's results as an input, where nothing is to run."""
    plan = replace(plan, spec=replace(plan.spec, feeds_join=True))
    return upstream_of(plan, plan.options.name, key, _DECLARED), None


def rates_of(plan: Plan, rates: Rates, known: dict[int, Rate] | None = None) -> dict[str, Rate]:
    """What is expected of each input of an operator, also of those that are results of lower ones.

    `known` is what lower plans give, as far as that was asked before.
    """
    known = {} if known is None else known
    found = {}
    for stream in plan.streams:
        given = rates.get(stream.name)
        if given is not None:
            found[stream.name] = given if isinstance(given, Rate) else Rate(given)
        elif stream.upstream is not None:
            below = stream.upstream.plan
            if id(below) not in known:
                known[id(below)] = _result(below, rates_of(below, rates, known))
            found[stream.name] = known[id(below)]
        else:
            found[stream.name] = (
                Rate(1) if stream.unique else Rate(10, rows_per_key=10, open_for="10 minutes")
            )
    return found


def _result(plan: Plan, rates: Mapping[str, Rate]) -> Rate:
    """What an operator is expected to give."""
    expected = [rates[stream.name] for stream in plan.streams]
    keys = min(rate.keys_per_second for rate in expected)
    per_key = min(math.prod(rate.rows_per_key for rate in expected), MOST)
    longest = max(expected, key=lambda rate: rate.opening_s or (0.0, 0.0))
    return Rate(min(keys * per_key, MOST), rows_per_key=per_key, open_for=longest.open_for)


def check_rates(streams: Sequence[Stream], rates: Any) -> None:
    """Refuse rates of what is no input."""
    names = [stream.name for stream in streams]
    if rates is not None and not (isinstance(rates, Mapping) and set(rates) <= set(names)):
        raise InvalidJoin(f"rates={rates!r}; give rows per second or a Rate for some of {', '.join(names)}")


def _assumed(streams: Sequence[Stream], rates: Rates) -> tuple[str, ...]:
    missing = [stream.name for stream in streams if stream.name not in rates]
    return (_ASSUMED.format(", ".join(missing)),) if missing else ()
