"""Stored specification: what a reader of a stored state must know of its join.

A state's identity says what must not change between a stop and a restart; `declared` adds what may
change and what only a reader needs: the join's name, the columns in Arrow's own types, lateness, what
closes keys, when punctuations are applied. It is stored once per join, beside the identity.

`read_spec` makes a specification with which the state can be restored and inspected, not joined with.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from streamjoin.columnar.batch import Layout
from streamjoin.declare.arrival import Arrival, Clustered, Ordered
from streamjoin.join.group_spec import Aggregate, Grouping
from streamjoin.join.join_type import join_type
from streamjoin.join.spec import InputSpec, JoinSpec
from streamjoin.state.sorted_runs import CompactionPolicy


def declared(spec: JoinSpec) -> dict[str, Any]:
    """What is stored beside the identity, as plain JSON."""
    return {
        "name": spec.name,
        "purge": spec.strategies.purge.name,
        "grouping": None if spec.grouping is None else _grouping_to_json(spec.grouping),
        "inputs": [
            {
                "columns": one.columns,
                "origins": one.origins,
                "schema": one.layout.schema.serialize().to_pybytes().hex(),
                "lateness (us)": one.lateness_us,
                "idle (us)": one.idle_us,
                "partitions": one.partitions,
                "fed by": one.fed_by,
                "closes": one.closes,
                "forwarded": one.forwarded,
            }
            for one in spec.inputs
        ],
    }


def read_spec(identity: dict[str, Any], facts: dict[str, Any], compaction: CompactionPolicy) -> JoinSpec:
    """The join that wrote a state, from its identity and what it `declared`."""
    grouping = facts["grouping"]
    return JoinSpec(
        facts["name"],
        tuple(
            _input(name, identity, stored)
            for name, stored in zip(identity["inputs"], facts["inputs"], strict=True)
        ),
        pa.schema([]),
        join_type(identity["how"], len(identity["inputs"])),
        compaction=compaction,
        buckets=identity["buckets"],
        hash=identity["hash"],
        grouping=None if grouping is None else _grouping_from_json(grouping),
        feeds_join=identity.get("feeds a join", False),
        stamps=("latest", "until")[: identity.get("stamps", 0)],
        null_safe=identity.get("null-safe", False),
        filter=identity.get("filter"),
        zone=identity.get("zone"),
    )


def _grouping_to_json(grouping: Grouping) -> dict[str, Any]:
    return {
        "joined": grouping.joined.serialize().to_pybytes().hex(),
        "keys": grouping.keys,
        "columns": grouping.columns,
        "aggregates": [(one.name, one.column, one.accumulator.says, one.by) for one in grouping.aggregates],
    }


def _grouping_from_json(saved: dict[str, Any]) -> Grouping:
    joined = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(saved["joined"])))
    aggregates = tuple(Aggregate.of(joined, *one) for one in saved["aggregates"])
    return Grouping(joined, tuple(saved["keys"]), tuple(saved["columns"]), aggregates)


def _input(name: str, identity: dict[str, Any], stored: dict[str, Any]) -> InputSpec:
    schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(stored["schema"])))
    types: dict[str, list[pa.DataType]] = {"k": [], "p": []}
    for field in schema:
        if field.name[0] in types:
            types[field.name[0]].append(field.type)
    arrival = identity["arrival"].get(name)
    return InputSpec(
        name,
        Layout(tuple(types["k"]), "t" in schema.names, tuple(types["p"]), until="d" in schema.names),
        tuple(stored["columns"]),
        window_us=identity["windows (us)"][name],
        ranges_us=tuple(identity.get("ranges (us)", {}).get(name, ())),
        lateness_us=stored["lateness (us)"],
        idle_us=stored["idle (us)"],
        unique=name in identity["unique"],
        partitions=stored["partitions"],
        arrival=None if arrival is None else _arrival(arrival),
        partitioned=arrival is not None and arrival.endswith("in each partition"),
        closes=stored["closes"],
        forwarded=tuple(stored["forwarded"]),
        origins=tuple(stored["origins"]),
        time=identity["times"].get(name),
        fed_by=stored["fed by"],
    )


def _arrival(text: str) -> Arrival:
    """The declaration that an identity wrote down.

    >>> _arrival("Ordered(descending=True, slack=2) in each partition")
    Ordered(descending=True, slack=2)
    """
    slack = int(re.findall(r"slack=(\d+)", text)[0])
    return Clustered(slack) if text.startswith("Clustered") else Ordered("descending=True" in text, slack)
