"""Join ordering: the tree of operators of a join without one common key, chosen by estimated cost.

The cost is lexicographic: inputs of all operators whose tuples are not bounded, then inputs whose closed
keys are not, then rows: those stored an hour after the start (`plan.cost`) and the intermediate results
of that hour. All trees are compared for up to six inputs; beyond, the cheapest
next operator is taken each time.

An operator is expected to give keys/s × the rows per key of each input, with the keys/s of the input that
has fewest. Worked number: 1 order a second with 1 row per key and 10 lines a second with 10 give 10 rows a
second, 36,000 in an hour. Where no rate is given it is assumed to be one key a second on every input, with
one row where its key is unique and 10 rows within 10 minutes where not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamjoin.declare.stream import Stream
from streamjoin.declare.upstream import UpstreamJoin
from streamjoin.errors import InvalidJoin
from streamjoin.plan.chain import upstream_of
from streamjoin.plan.cost import Rate, predict
from streamjoin.plan.graph.edges import Graph, graph_of
from streamjoin.plan.graph.tree import Lift, Planner, Tree, grow, leaves, shared_memory
from streamjoin.plan.planner import JoinOptions, Plan, check_streams, check_times

ALL_TREES_UP_TO = 6  # inputs
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
    if options.how != "inner":
        raise InvalidJoin(
            f"how={options.how!r} with on=: joins on several keys are inner joins; join two streams with "
            "how=, and that result as a stream, sj.stream(joined, …), with the others"
        )
    check_times(streams)
    graph = graph_of(streams, on)
    _check_rates(streams, rates)
    tree, why = _cheapest(graph, options, rates or {})
    return _planned(graph, tree, options, lift, (*why, *(_assumed(streams, rates or {}) if why else ())))


def forced(streams: Sequence[Stream], on: Any, options: JoinOptions, lift: Lift) -> Iterator[Plan]:
    """The join in every order there is; to compare them."""
    graph = graph_of(streams, on)
    for tree in all_trees(leaves(graph)):
        yield _planned(graph, tree, options, lift, ())


def _planned(graph: Graph, tree: Tree, options: JoinOptions, lift: Lift, why: tuple[str, ...]) -> Plan:
    operators = list(tree.operators())
    planner = Planner(graph, shared_memory(options, len(operators)), lift)
    plan = planner.plan(tree, options.name, last=True)
    names = [*(f"{options.name}_{n}" for n in range(1, len(operators))), options.name]
    return replace(plan, steps=(*_steps(graph, dict(zip(operators, names, strict=True))), *why))


def _steps(graph: Graph, names: Mapping[Tree, str]) -> list[str]:
    """Which inputs share an operator, on which key, in order."""
    found = []
    for operator, name in names.items():
        inputs = " ⋈ ".join(names.get(part) or graph.streams[part.inputs[0]].name for part in operator.parts)
        key = " and ".join(graph.equation(number, operator.inputs) for number in operator.key)
        found.append(f"{name}: {inputs} on {key}")
    return found


def all_trees(units: frozenset[Tree]) -> list[Tree]:
    """Every tree over these units, each once."""
    seen: set[frozenset[Tree]] = set()
    found: list[Tree] = []

    def walk(units: frozenset[Tree]) -> None:
        if units in seen:
            return
        seen.add(units)
        if len(units) == 1:
            found.extend(units)
        for over in grow(units):
            walk((units - {*over.parts}) | {over})

    walk(units)
    return found


def _cheapest(graph: Graph, options: JoinOptions, rates: Rates) -> tuple[Tree, tuple[str, ...]]:
    """The tree to run, and why."""
    units = leaves(graph)
    costs = _costs(graph, options, rates)
    if len(units) > ALL_TREES_UP_TO:
        while len(units) > 1:
            over = min(grow(units), key=lambda one: (costs(one), one.inputs))
            units = (units - {*over.parts}) | {over}
        (tree,) = units
        why = f"for more than {ALL_TREES_UP_TO} inputs the cheapest next operator is taken each time"
        return tree, (why,) if len(list(tree.operators())) > 1 else ()
    ranked = sorted(
        (
            (sum((costs(one) for one in tree.operators()), Cost()), i, tree)
            for i, tree in enumerate(all_trees(units))
        )
    )
    best, _, tree = ranked[0]
    if len(ranked) == 1:
        return tree, () if len(tree.parts) == len(graph.streams) else ("there is no other order",)
    if ranked[-1][0] == best:
        return tree, (f"all {len(ranked)} orders are estimated to cost the same: {best}",)
    dearer = next(cost for cost, *_ in ranked if cost != best)
    return tree, (f"the cheapest of {len(ranked)} orders by estimate: {best}; the next: {dearer}",)


def _costs(graph: Graph, options: JoinOptions, rates: Rates) -> Callable[[Tree], Cost]:
    """The cost of an operator without those below it."""
    bare = tuple(replace(stream, source=None) for stream in graph.streams)
    planner = Planner(replace(graph, streams=bare), replace(options, strict=False, memory=None), _alone)
    known: dict[Tree, Cost] = {}

    def cost(tree: Tree) -> Cost:
        if tree not in known:
            plan = planner.plan(tree, options.name, last=len(tree.inputs) == len(bare))
            expected = rates_of(plan, rates)
            rows = sum(one.rows for one in predict(plan, expected, "1 hour"))
            if len(tree.inputs) < len(bare):
                rows += _result(plan, expected).rows_per_second * _HOUR_S
            tuples = sum(not bound.tuples for bound in plan.bounds)
            known[tree] = Cost(tuples, sum(not bound.closed_keys for bound in plan.bounds), rows)
        return known[tree]

    return cost


def _alone(plan: Plan, key: tuple[str, ...]) -> tuple[UpstreamJoin, None]:
    """A plan's results as an input, where nothing is to run."""
    plan = replace(plan, spec=replace(plan.spec, feeds_join=True))
    return upstream_of(plan, plan.options.name, key, _DECLARED), None


def rates_of(plan: Plan, rates: Rates) -> dict[str, Rate]:
    """What is expected of each input of an operator, also of those that are results of lower ones."""
    found = {}
    for stream in plan.streams:
        given = rates.get(stream.name)
        if given is not None:
            found[stream.name] = given if isinstance(given, Rate) else Rate(given)
        elif stream.upstream is not None:
            found[stream.name] = _result(stream.upstream.plan, rates_of(stream.upstream.plan, rates))
        else:
            found[stream.name] = (
                Rate(1) if stream.unique else Rate(10, rows_per_key=10, open_for="10 minutes")
            )
    return found


def _result(plan: Plan, rates: Mapping[str, Rate]) -> Rate:
    """What an operator is expected to give."""
    expected = [rates[stream.name] for stream in plan.streams]
    keys = min(rate.keys_per_second for rate in expected)
    per_key = math.prod(rate.rows_per_key for rate in expected)
    longest = max(expected, key=lambda rate: rate.opening_s or (0.0, 0.0))
    return Rate(keys * per_key, rows_per_key=per_key, open_for=longest.open_for)


def _check_rates(streams: Sequence[Stream], rates: Any) -> None:
    names = [stream.name for stream in streams]
    if rates is not None and not (isinstance(rates, Mapping) and set(rates) <= set(names)):
        raise InvalidJoin(f"rates={rates!r}; give rows per second or a Rate for some of {', '.join(names)}")


def _assumed(streams: Sequence[Stream], rates: Rates) -> tuple[str, ...]:
    missing = [stream.name for stream in streams if stream.name not in rates]
    return (_ASSUMED.format(", ".join(missing)),) if missing else ()
