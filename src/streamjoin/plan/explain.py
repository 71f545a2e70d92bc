"""The plan in words: what joins, what was chosen and why, and whether the state is bounded."""

from __future__ import annotations

from streamjoin.metadata import Clustered, Inner, Stream
from streamjoin.plan.grouping import about_groups
from streamjoin.plan.planner import Plan
from streamjoin.plan.presets import PRESETS
from streamjoin.plan.safety import Bound, closes_keys


def explain(plan: Plan) -> str:
    """The plan as text for someone who has not read the papers."""
    names = " ⋈ ".join(stream.name for stream in plan.streams)
    keys = " = ".join(f"{stream.name}.{'+'.join(stream.key)}" for stream in plan.streams)
    types = ", ".join(str(dtype) for dtype in plan.spec.key_types)
    lines = [
        f"{plan.options.name}: {names}",
        f"  {plan.spec.how.name} join on {keys} ({types}), goal {plan.options.goal}",
        f"  result: {', '.join(plan.spec.emits.names)}",
        "",
        "What is known of each input",
    ]
    lines += [f"  {stream.name}: {_facts(stream)}" for stream in plan.streams]
    lines += ["", "How it runs"]
    if plan.options.operator is not None:
        lines.append(f"  {PRESETS[plan.options.operator].says}")
    lines += [f"  {choice} ({why})" for choice, why in plan.reasons]
    lines += about_groups(plan)
    lines += ["", "Is the state bounded?"]
    for bound in plan.bounds:
        lines += _verdict(bound)
    for stream in plan.streams:
        if stream.inner is not None:
            inner = explain(stream.inner.plan).splitlines()
            lines += ["", f"{stream.name} is the result of", *(f"  {line}".rstrip() for line in inner)]
    return "\n".join(lines)


def _facts(stream: Stream) -> str:
    facts = [] if stream.inner is None else [_passed_on(stream.inner)]
    if stream.unique:
        facts.append("one tuple per key")
    if stream.window_us is not None:
        facts.append(f"window {stream.window_us / 1e6:g} s")
    if stream.lateness_us is not None:
        facts.append(f"lateness {stream.lateness_us / 1e6:g} s")
    if stream.idle_us is not None:
        facts.append(f"idle after {stream.idle_us / 1e6:g} s")
    if stream.arrival is not None:
        kind = "clustered" if isinstance(stream.arrival, Clustered) else "ordered"
        where = " in each partition" if len(stream.sequence) == 2 else ""
        facts.append(f"{kind} arrival{where}, slack {stream.arrival.slack}")
    if stream.punctuation is not None and stream.heeded:
        facts.append(f"keys end by {closes_keys(stream)}")
    return "; ".join(facts) or "nothing was declared"


def _passed_on(inner: Inner) -> str:
    said = f"result of join {inner.join}"
    if inner.places is None:
        propagates = inner.plan.spec.propagate
        why = "whose punctuations are of another key" if propagates else "which announces no keys"
        return f"{said}, {why}: only its end is passed on"
    if not inner.finishes:
        return f"{said}, whose punctuations are passed on, but nothing declared of its inputs finishes keys"
    return f"{said}; keys end by its punctuations"


def _verdict(bound: Bound) -> list[str]:
    if bound.tuples and bound.promises:
        word = "bounded"
    elif bound.tuples:
        word = "tuples bounded, memory of promises not"
    else:
        word = "NOT BOUNDED"
    lines = [f"  {bound.stream}: {word}"]
    lines += [f"    - {reason}" for reason in bound.reasons]
    if bound.advice:
        lines += [f"    - to bound it, declare {advice}" for advice in bound.advice]
    return lines
