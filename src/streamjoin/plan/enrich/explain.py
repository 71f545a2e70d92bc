"""Explain of an enrichment, as text and as JSON: what is joined, how the memory is divided, when keys are
looked up and when the table is scanned, and how long a row may wait.

Both forms say the same: the text is made from the dictionary that the JSON is. Figures come from the staged
version where there is one; before that they are guessed from the columns, and said to be.

Worked number: 1 GB in 239 segments of 4 MB, 2 GB/s, 1 µs for a key and 300 µs for a segment it is looked for
in: a segment is read in 2.1 ms, in which 1,797 of its keys are found. Over ten batches (`cycle_batches=10`) a
batch scans 50 ms, in which 166 keys are found, each in a segment of its own: fewer are answered at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from streamjoin.declare.durations import duration_text
from streamjoin.enrich.cost import EnrichCostModel, EnrichLoad, LoopCosts, ServiceForecast
from streamjoin.enrich.read_costs import ReadCosts
from streamjoin.enrich.segments import SEGMENT_BYTES, StagedVersion
from streamjoin.errors import InvalidJoin
from streamjoin.plan.cost import Rate, row_bytes
from streamjoin.plan.enrich.planner import ENRICH_PRESETS, EnrichPlan
from streamjoin.plan.explain import check_format, size_text

_HEADING = (
    "How it runs (set by operator=, access= and switching_factor=, and in sj.table by memory=, "
    "cycle_batches=, version= and wait=)"
)
_SKEWS = (0.0, 1.0)  # the stream's own skew is unknown: the ends of the usual range
_GUESSED_BYTES = 1e9  # of a table of which nothing is known


@dataclass(frozen=True)
class TableContent:
    """What is known of a table's content: its source, its rows where known, its staged version."""

    says: str
    rows: int | None = None
    version: StagedVersion | None = None
    fingerprint: bool = False  # whether the source tells when it is new


@dataclass(frozen=True)
class ExpectedRate:
    """The stream's rate, and what a turn of the join costs on this machine."""

    rate: Rate
    costs: LoopCosts


def described(
    plan: EnrichPlan, contents: Mapping[str, TableContent], expected: ExpectedRate | None = None
) -> dict[str, Any]:
    """Everything that is known of a plan before it runs, as plain values."""
    content = contents[plan.table.name]
    buckets = _buckets(plan, content)
    preset = plan.options.operator
    return {
        "name": plan.name,
        "how": plan.table.how,
        "operator": None if preset is None else {"name": preset, "says": ENRICH_PRESETS[preset]},
        "key_types": [str(dtype) for dtype in plan.spec.stream.key_types],
        "stream": {"name": plan.stream.name, "key": list(plan.stream.key)},
        "table": {"name": plan.table.name, "key": list(plan.table.key), **_content(plan, content)},
        "where": None if plan.spec.where is None else plan.spec.where.says,
        "result": list(plan.spec.output.names),
        "memory": _memory(plan, content, buckets),
        "cache": {"switching_factor": plan.spec.switching_factor if plan.spec.caches else None},
        "scan": _scan(plan, content),
        "latency": {"cycle_batches": plan.spec.cycle_batches, "says": _latency(plan)},
        "versions": _versions(plan, content),
        "wait": None if plan.spec.wait_us is None else _wait(plan),
        "predicted": None if expected is None else _predicted(plan, content, expected),
        "below": None if plan.below is None else described(plan.below, contents, expected),
    }


def _buckets(plan: EnrichPlan, content: TableContent) -> int:
    if content.version is not None:
        return content.version.form.buckets
    return plan.options.buckets or 1


def _content(plan: EnrichPlan, content: TableContent) -> dict[str, Any]:
    """How large the table is, as far as it is known."""
    version = content.version
    if version is not None:
        size: dict[str, Any] = {"rows": version.rows, "bytes": version.nbytes, "size": "staged"}
        return {"source": content.says, **size, "null_keys": version.null_keys}
    if content.rows is not None:
        nbytes = round(content.rows * row_bytes(plan.spec.table))
        return {"source": content.says, "rows": content.rows, "bytes": nbytes, "size": "guessed"}
    return {"source": content.says, "rows": None, "bytes": None, "size": "unknown"}


def _memory(plan: EnrichPlan, content: TableContent, buckets: int) -> dict[str, Any]:
    version = content.version
    segment = plan.segment_bytes(buckets) if version is None else version.largest_segment
    if version is None and content.rows is not None:
        segment = min(segment, round(content.rows * row_bytes(plan.spec.table) / buckets))
    return {
        "bytes": plan.spec.memory_bytes,
        "buckets": buckets,
        "segment_bytes": buckets * segment,
        "other_bytes": plan.spec.memory_bytes - buckets * segment,
        "least_bytes": None if version is None else plan.least_memory(version),
    }


def _scan(plan: EnrichPlan, content: TableContent) -> dict[str, Any]:
    """From how many keys on a segment is read whole, and a batch waits for the scan: where both ways cost the
    same.
    """
    costs = ReadCosts() if content.version is None else content.version.costs
    nbytes = _content(plan, content)["bytes"]
    all_bytes = _GUESSED_BYTES if nbytes is None else nbytes
    each_batch = all_bytes / plan.spec.cycle_batches
    segments = (
        int(all_bytes // SEGMENT_BYTES) + 1 if content.version is None else len(content.version.segments)
    )
    memory = _memory(plan, content, _buckets(plan, content))
    segment_bytes = memory["segment_bytes"] // memory["buckets"]
    return {
        "access": plan.spec.access,
        "scan_bytes_a_batch": round(each_batch),
        "scan_s_a_batch": costs.read(each_batch),
        "segment_bytes": segment_bytes,
        "keys_read_whole": costs.break_even(segment_bytes, 1),
        "keys_that_wait": None if plan.spec.cycle_batches == 1 else costs.break_even(each_batch, segments),
        "costs": {**asdict(costs), "assumed": content.version is None},
        "bytes_assumed": nbytes is None,
    }


def _latency(plan: EnrichPlan) -> str:
    batches = plan.spec.cycle_batches
    if batches == 1:
        return "each row is answered in the batch it comes with"
    return (
        f"each row is answered within {batches} batches: {batches - 1} later at most, and each batch "
        f"reads a share of 1/{batches} of the table"
    )


def _versions(plan: EnrichPlan, content: TableContent) -> dict[str, Any]:
    label = plan.table.version
    if label is not None:
        says = f"labelled {label!r}: another label is another version"
    elif content.fingerprint:
        says = (
            "the source tells by its content whether it is new, when the join starts and when it is refreshed"
        )
    else:
        says = "the source does not tell whether it is new; give version= a label to have another one staged"
    staged = None if content.version is None else content.version.id
    return {"label": label, "staged": staged, "in_result": plan.table.emits_version, "says": says}


def _wait(plan: EnrichPlan) -> dict[str, Any]:
    wait_us, lateness_us = plan.spec.wait_us or 0, plan.spec.lateness_us
    leaves = "leave padded" if plan.spec.preserves else "are dropped, and counted as unmatched"
    return {
        "wait_s": wait_us / 1e6,
        "lateness_s": lateness_us / 1e6,
        "says": "rows without a match are tried with each new version until the stream's event time is "
        f"{duration_text(wait_us + lateness_us)} past their own, then they {leaves}; what they take is not "
        "part of memory=",
    }


def _predicted(plan: EnrichPlan, content: TableContent, expected: ExpectedRate) -> dict[str, Any]:
    """What the cost model says: the memory for the rate, and the rate for the memory."""
    known = _content(plan, content)
    rate = expected.rate
    found: dict[str, Any] = {"rows_per_second": rate.rows_per_second, "cases": []}
    if not known["rows"]:
        return found
    spec, segments = plan.spec, max(1, round(known["bytes"] / plan.segment_bytes(_buckets(plan, content))))
    load = EnrichLoad(
        known["rows"],
        known["bytes"] / known["rows"],
        spec.waiting_bytes(rate.row_bytes or row_bytes(spec.stream)),
        segments if content.version is None else len(content.version.segments),
        ordered=spec.access != "paper",
        caches=spec.caches,
        fudge=spec.fudge,
    )
    for skew in _SKEWS:
        model = EnrichCostModel(expected.costs, replace(load, skew=skew))
        needed = _forecast(model.memory_for, rate.rows_per_second)
        given = _forecast(model.rate_for, spec.memory_bytes)
        found["cases"].append({"skew": skew, "for_the_rate": needed, "with_the_memory": given})
    return found


def _forecast(ask: Callable[[float], ServiceForecast], figure: float) -> dict[str, Any] | None:
    """None where no memory, or no rate, is enough."""
    try:
        found = ask(figure)
    except InvalidJoin:
        return None
    return {
        "memory_bytes": round(found.memory),
        "rows_per_second": round(found.rate),
        "hit_rate": round(found.hit_rate, 3),
        "mean_wait_s": found.mean_wait_s,
    }


# In words


def explained(
    plan: EnrichPlan, contents: Mapping[str, TableContent], form: str, expected: ExpectedRate | None = None
) -> str:
    """The plan as text for someone who has not read the papers, or as JSON."""
    check_format(form)
    found = described(plan, contents, expected)
    return as_text(found) if form == "text" else json.dumps(found, ensure_ascii=False, indent=2)


def as_text(plan: Mapping[str, Any]) -> str:
    """What `described` gives, in words."""
    stream, table = plan["stream"], plan["table"]
    keys = " = ".join(f"{one['name']}.{'+'.join(one['key'])}" for one in (stream, table))
    lines = [
        f"{plan['name']}: {stream['name']} ⋈ {table['name']}, a stream and a table",
        f"  {plan['how']} join on {keys} ({', '.join(plan['key_types'])})",
        *([] if plan["where"] is None else [f"  where {plan['where']}"]),
        f"  result: {', '.join(plan['result'])}",
        f"  {table['name']}: {_size_text(table)}",
        "",
        _HEADING,
        *(f"  {line}" for line in _how(plan)),
    ]
    if plan["predicted"] is not None:
        lines += ["", *_predicted_lines(plan)]
    if plan["below"] is not None:
        inner = as_text(plan["below"]).splitlines()
        lines += ["", f"{stream['name']} comes from", *(f"  {line}".rstrip() for line in inner)]
    return "\n".join(lines)


def _size_text(table: Mapping[str, Any]) -> str:
    if table["size"] == "unknown":
        return f"{table['source']}; how large it is shows when it is staged"
    text = f"{table['source']}, {table['rows']:,} rows, "
    if table["size"] == "guessed":
        return f"{text}about {size_text(table['bytes'])} (guessed from its columns)"
    nulls = f", and {table['null_keys']:,} left out because their key is null" if table["null_keys"] else ""
    return f"{text}{size_text(table['bytes'])} staged{nulls}"


def _how(plan: Mapping[str, Any]) -> list[str]:
    lines = []
    if plan["operator"] is not None:
        lines.append(plan["operator"]["says"])
    else:
        lines.append("cache: values that come often are kept with all their table rows, answered at once")
    factor = plan["cache"]["switching_factor"]
    if factor is not None and factor != 1:
        lines.append(
            f"switching factor: a value is cached when its waiting rows take {factor:g} times its rows"
        )
    lines += [f"scan: {_scan_text(plan)}", f"latency: {plan['latency']['says']}"]
    lines += [f"memory: {_memory_text(plan['memory'])}", f"versions: {_versions_text(plan['versions'])}"]
    if plan["wait"] is not None:
        lines.append(f"waiting room: {plan['wait']['says']}")
    return lines


def _scan_text(plan: Mapping[str, Any]) -> str:
    scan = plan["scan"]
    most = size_text(scan["scan_bytes_a_batch"])
    if plan["operator"] is not None:
        return f"the segments are scanned, {most} a batch, as in the paper"
    if scan["access"] == "scan":
        return f"segments that have missed keys are read whole, {most} a batch at most (access='scan')"
    if scan["access"] == "lookup":
        return "missed keys are looked up (access='lookup')"
    costs = scan["costs"]
    origin = "assumed until it is staged" if costs["assumed"] else "measured when it was staged"
    if scan["bytes_assumed"]:
        origin = f"assumed, as if it were {size_text(_GUESSED_BYTES)}"
    wait = ""
    if scan["keys_that_wait"] is not None:
        wait = f"below {scan['keys_that_wait']:,} waiting keys all are answered at once; "
    only = f"{wait}a batch reads only segments that have missed keys, {most} at most"
    if scan["keys_read_whole"] <= 1:
        return f"{only}, each whole: that costs less than finding one key ({origin})"
    return (
        f"{only}; below {scan['keys_read_whole']:,} missed keys in one of {size_text(scan['segment_bytes'])} "
        f"these are looked up, else it is read whole ({origin}: "
        f"a key is found in {costs['find_s_per_key'] * 1e6:.3g} µs, "
        f"and {costs['find_s_per_segment'] * 1e6:.3g} µs for each segment it is looked for in, "
        f"{size_text(1 / costs['read_s_per_byte'])} are read in a second)"
    )


def _memory_text(memory: Mapping[str, Any]) -> str:
    over = f" over {memory['buckets']} buckets" if memory["buckets"] > 1 else ""
    least = memory["least_bytes"]
    needed = "what is needed at least shows when it is staged"
    return (
        f"{_as_given(memory['bytes'])}{over}: {_as_given(memory['segment_bytes'])} for the segment that is "
        f"read (its size by the cost model), {_as_given(memory['other_bytes'])} for cached values "
        "and rows that wait "
        f"({needed if least is None else f'at least {_as_given(least)} is needed'})"
    )


def _as_given(nbytes: int) -> str:
    """Bytes in the units in which a user gives memory: 1 MB is 1,048,576 bytes.

    >>> _as_given(64 << 20), _as_given(1536), _as_given(24)
    ('64 MB', '1.5 kB', '24 bytes')
    """
    for unit, bits in (("GB", 30), ("MB", 20), ("kB", 10)):
        if nbytes >= 1 << bits:
            return f"{nbytes / (1 << bits):.3g} {unit}"
    return f"{nbytes} bytes"


def _versions_text(versions: Mapping[str, Any]) -> str:
    staged = "" if versions["staged"] is None else f"{versions['staged']} is staged; "
    shown = "; the result says by which each row was joined" if versions["in_result"] else ""
    return f"{staged}{versions['says']}{shown}"


def _predicted_lines(plan: Mapping[str, Any]) -> list[str]:
    found, memory = plan["predicted"], _as_given(plan["memory"]["bytes"])
    rate = f"{found['rows_per_second']:,.0f} rows/s"
    lines = [
        f"What {rate} of {plan['stream']['name']} need (cost model, calibrated on this machine, one core)"
    ]
    if not found["cases"]:
        return [*lines, "  how large the table is shows when it is staged; ask again then"]
    for case in found["cases"]:
        keys = "all keys equally often" if case["skew"] == 0 else f"keys by Zipf {case['skew']:g}"
        needed, given = case["for_the_rate"], case["with_the_memory"]
        text = f"more than one core can do with {memory} or more"
        if needed is not None:
            text = f"{_as_given(needed['memory_bytes'])}, {needed['hit_rate']:.0%} of the rows hit the cache"
        most = f"{memory} are too little"
        if given is not None:
            most = f"{memory} allow {given['rows_per_second']:,} rows/s, {given['hit_rate']:.0%} hits"
        lines.append(f"  {keys}: {text}; {most}")
    return lines
