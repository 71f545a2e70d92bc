"""Explain: a plan as text and as JSON: the inputs, the strategies chosen and why, the state bounds and,
where rates are given, the predicted state.

The text is written for someone who has not read the papers. It is made from the dictionary that is the
JSON, so both say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from streamjoin.declare.durations import Duration, duration_text, duration_us
from streamjoin.declare.stream import Stream
from streamjoin.declare.upstream import UpstreamJoin
from streamjoin.errors import InvalidJoin
from streamjoin.plan.bounds import ORDER_OF_ADVICE, Bound, closes_keys
from streamjoin.plan.chain import all_streams
from streamjoin.plan.cost import Predicted, Rate, predict
from streamjoin.plan.graph.order import check_rates, rates_of
from streamjoin.plan.group_by import about_groups
from streamjoin.plan.metadata import metadata, metadata_lines
from streamjoin.plan.planner import Plan
from streamjoin.plan.presets import PRESETS
from streamjoin.plan.violations import violation_lines, violations_of
from streamjoin.plan.where.explain import about_where, where_lines

Rates = Mapping[str, Rate | float]


def described(plan: Plan, rates: Rates | None = None, after: Duration = "1 day") -> dict[str, Any]:
    """Everything that is known of a plan before it runs, as plain values."""
    if rates is not None and plan.steps:
        check_rates(list(all_streams(plan.streams)), rates)
    return _described(plan, rates, after)


def _described(plan: Plan, rates: Rates | None, after: Duration) -> dict[str, Any]:
    operator = plan.options.operator
    declared = plan.streams[::-1] if plan.spec.how.reversed else plan.streams
    found: dict[str, Any] = {
        "name": plan.options.name,
        "how": plan.spec.how.name,
        "goal": plan.options.goal,
        "operator": None if operator is None else {"name": operator, "says": PRESETS[operator].says},
        "null_safe": plan.spec.null_safe,
        "key_types": [str(dtype) for dtype in plan.spec.key_types],
        **about_where(plan),
        "inputs": [{"name": s.name, "key": list(s.key), "known": _facts(s)} for s in declared],
        "metadata": metadata(plan),
        "violations": violations_of(plan),
        "result": [name for name in plan.spec.emits.names if name not in plan.spec.stamps],
        "operators": list(plan.steps),
        "choices": [{"choice": choice, "why": why} for choice, why in plan.reasons],
        "groups": about_groups(plan),
        "state": [_verdict(bound) for bound in plan.bounds],
        "bounded": all(bound.tuples and bound.closed_keys for bound in plan.bounds),
        "predicted": None,
        "below": {
            s.name: _described(
                s.upstream.plan, rates if plan.steps and s.upstream.plan.steps else None, after
            )
            for s in plan.streams
            if s.upstream is not None
        },
    }
    if rates is not None:
        expected = rates_of(plan, rates) if plan.steps else rates
        found["predicted"] = _predicted(predict(plan, expected, after), after)
    return found


def _verdict(bound: Bound) -> dict[str, Any]:
    return {
        "input": bound.stream,
        "tuples_bounded": bound.tuples,
        "closed_keys_bounded": bound.closed_keys,
        "because": [asdict(reason) for reason in bound.why],
        "to_bound_it": list(bound.advice),
        "loses": bound.loses,
    }


def _predicted(inputs: Sequence[Predicted], after: Duration) -> dict[str, Any]:
    return {
        "after_s": duration_us(after, what="after") / 1e6,
        "rows": round(sum(one.rows for one in inputs)),
        "closed_keys": round(sum(one.closed_keys for one in inputs)),
        "bytes": round(sum(one.nbytes for one in inputs)),
        "inputs": [
            {
                "input": one.stream,
                "rows": round(one.rows),
                "closed_keys": round(one.closed_keys),
                "closed_keys_growing": one.closed_keys_growing,
                "bytes": round(one.nbytes),
                "mean_life_s": one.mean_life_s,
                "growing": one.growing,
                "equation_1_rows": None if one.equation_1 is None else round(one.equation_1),
                "equation_1_keys": one.equation_1_keys,
            }
            for one in inputs
        ],
    }


def explain(plan: Plan, rates: Rates | None = None, after: Duration = "1 day") -> str:
    """The plan as text for someone who has not read the papers."""
    return as_text(described(plan, rates, after))


def as_text(plan: Mapping[str, Any]) -> str:
    """What `described` gives, in words."""
    inputs = plan["inputs"]
    keys = (" <=> " if plan["null_safe"] else " = ").join(
        f"{one['name']}.{'+'.join(one['key'])}" for one in inputs
    )
    lines = [
        f"{plan['name']}: {' ⋈ '.join(one['name'] for one in inputs)}",
        f"  {plan['how']} join on {keys} ({', '.join(plan['key_types'])}), goal {plan['goal']}",
        f"  result: {', '.join(plan['result'])}",
        "",
        "What is known of each input",
    ]
    lines[2:2] = [f"  {line}" for line in where_lines(plan)]
    lines += [f"  {one['name']}: {'; '.join(one['known']) or 'nothing was declared'}" for one in inputs]
    lines += [f"  {line}" for line in violation_lines(plan["violations"])]
    lines += ["", "Metadata by granularity, time and scope", *metadata_lines(plan["metadata"])]
    if len(plan["operators"]) > 1:
        steps = [f"  {line}" for line in plan["operators"]]
        lines += ["", "Operators, one after another in each batch", *steps]
    lines += ["", "How it runs (all of it can be set: driver=, order=, purge=, probe=, memory=)"]
    if plan["operator"] is not None:
        lines.append(f"  {plan['operator']['says']}")
    lines += [f"  {one['choice']} ({one['why']})" for one in plan["choices"]]
    if plan["groups"]:
        lines += ["", "Groups", *(f"  {line}" for line in plan["groups"])]
    lines += ["", "Is the state bounded? (a tuple is kept until no tuple that could join it can still come)"]
    for verdict in plan["state"]:
        lines += _verdict_lines(verdict)
    if any(len(verdict["to_bound_it"]) > 1 for verdict in plan["state"]):
        lines.append(f"  ({ORDER_OF_ADVICE})")
    if plan["predicted"] is not None:
        lines += ["", *_prediction_lines(plan["predicted"])]
    for name, below in plan["below"].items():
        inner = as_text(below).splitlines()
        lines += ["", f"{name} is the result of", *(f"  {line}".rstrip() for line in inner)]
    return "\n".join(lines)


def _facts(stream: Stream) -> list[str]:
    facts = [] if stream.upstream is None else [_propagated(stream.upstream)]
    if stream.unique:
        facts.append("one tuple per key")
    sent = _sent_watermark(stream)
    facts += [] if sent is None else [sent]
    for what, micros in (
        ("window", stream.window_us),
        ("lateness", stream.lateness_us if sent is None else None),
        ("idle after", stream.idle_us),
        ("time to live", stream.ttl_us),
    ):
        if micros is not None:
            facts.append(f"{what} {duration_text(micros)}")
    if stream.arrival is not None:
        where = " in each partition" if len(stream.sequence) == 2 else ""
        facts.append(f"{stream.arrival.name} arrival{where}, slack {stream.arrival.slack}")
    if stream.punctuation is not None and stream.uses_punctuations:
        facts.append(f"keys are closed by {closes_keys(stream)}")
    if stream.punctuation is not None and (remark := stream.punctuation.remark()) is not None:
        facts.append(remark)
    return facts


def _sent_watermark(stream: Stream) -> str | None:
    """That an upstream join sends the watermark of a stream, and which lateness is ignored for it."""
    upstream = stream.upstream
    if upstream is None or upstream.time is None or not upstream.time.watermark:
        return None
    sent = (
        f"its watermark for {stream.time}, the time of {upstream.time.input}, is sent by join {upstream.join}"
    )
    ignored = upstream.time.ignored_us
    return sent if ignored is None else f"{sent} (lateness {duration_text(ignored)} is ignored: not needed)"


def _propagated(upstream: UpstreamJoin) -> str:
    """A stream that is a join's result, and which punctuations the join propagates to it."""
    result = f"result of join {upstream.join}"
    if upstream.propagates is not None:
        return (
            f"{result}, which propagates {upstream.propagates} on its key once its state has no tuple that "
            "they cover"
        )
    if upstream.key_positions is None:
        propagates = upstream.plan.spec.propagate
        why = "whose punctuations are on another key" if propagates else "which propagates no punctuations"
        return f"{result}, {why}: only its end is propagated"
    if not upstream.finishes_keys:
        return f"{result}, which propagates punctuations, but nothing declared of its inputs finishes keys"
    return f"{result}; keys are closed by its punctuations"


def _verdict_lines(verdict: Mapping[str, Any]) -> list[str]:
    if verdict["tuples_bounded"] and verdict["closed_keys_bounded"]:
        word = "bounded" if verdict["loses"] is None else "bounded by loss"
    elif verdict["tuples_bounded"]:
        word = "tuples bounded, remembered keys unbounded"
    else:
        word = "NOT BOUNDED"
    lines = [f"  {verdict['input']}: {word}"]
    for reason in verdict["because"]:
        needs = f", provided {reason['provided']}" if reason["provided"] else ""
        lines.append(f"    - {reason['says']}{needs}")
    if verdict["loses"] is not None:
        lines.append(f"    - loses {verdict['loses']}")
    for i, advice in enumerate(verdict["to_bound_it"]):
        lines.append(f"    - {'or' if i else 'to bound it, declare'} {advice}")
    return lines


def _prediction_lines(predicted: Mapping[str, Any]) -> list[str]:
    after = duration_text(predicted["after_s"] * 1e6)
    lines = [f"Predicted state, {after} after its start, at the given rates"]
    for one in predicted["inputs"]:
        life = f"each needed for {duration_text(one['mean_life_s'] * 1e6)} on average"
        growing = one["growing"] and one["rows"]
        text = f"  {one['input']}: {one['rows']:,} tuples ({'and growing' if growing else life})"
        if one["closed_keys"]:
            ever = " (and growing)" if one["closed_keys_growing"] else ""
            text += f", {one['closed_keys']:,} closed keys{ever}"
        lines.append(f"{text}, {size_text(one['bytes'])}")
        if one["equation_1_rows"] is not None:
            why = "as it assumes that every closed key is purged"
            if one["equation_1_keys"] is not None:
                why = f"with {one['equation_1_keys']:,} distinct keys, punctuated one after another"
            printed = f"{one['equation_1_rows']:,} tuples, {why}"
            lines.append(f"    equation 1 of the PWJoin paper says {printed}")
    lines.append(f"  together: {predicted['rows']:,} tuples, {size_text(predicted['bytes'])}")
    return lines


def size_text(nbytes: float) -> str:
    """Bytes in the unit in which they read best.

    >>> size_text(900), size_text(2_500_000)
    ('900 bytes', '2.5 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes:.0f} bytes"


def check_format(wanted: Any) -> None:
    """Refuse what is neither text nor JSON."""
    if wanted not in ("text", "json"):
        raise InvalidJoin(f"explain(format={wanted!r}); give 'text' or 'json'")
