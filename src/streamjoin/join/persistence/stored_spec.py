"""What a reader of a stored state must know of its join, and a specification made of it again.

A state's identity says what must not change between a stop and a restart; `declared` adds what may
change and what only a reader needs: the join's name, the columns in Arrow's own types, lateness, what
closes keys, when promises are carried out. It is stored once per join, beside the identity.

`read_spec` makes a specification with which the state can be restored and looked at, not joined with.
A state from before this was stored is read as well: the types are then those of its runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from streamjoin.columnar.batch import Layout
from streamjoin.declare.stream import Arrival, Clustered, Ordered
from streamjoin.errors import StateFormatError
from streamjoin.join.aggregates import ALL_ROWS, FUNCTIONS
from streamjoin.join.group_spec import Aggregate, Grouping
from streamjoin.join.join_type import join_type
from streamjoin.join.spec import InputSpec, JoinSpec
from streamjoin.state.sorted_runs import CompactionPolicy

_ALIASES = {"date32[day]": pa.date32(), "timestamp[us]": pa.timestamp("us"), "double": pa.float64()}


def declared(spec: JoinSpec) -> dict[str, Any]:
    """What is stored beside the identity, as plain JSON."""
    return {
        "name": spec.name,
        "purge": spec.strategies.purge.name,
        "grouping": None if spec.grouping is None else _grouping_to_json(spec.grouping),
        "inputs": [
            {
                "schema": one.layout.schema.serialize().to_pybytes().hex(),
                "lateness (us)": one.lateness_us,
                "idle (us)": one.idle_us,
                "partitions": one.partitions,
                "closes": one.closes,
                "forwarded": one.forwarded,
            }
            for one in spec.inputs
        ],
    }


def read_spec(
    identity: dict[str, Any], facts: dict[str, Any], stored: Iterable[pa.Schema], compaction: CompactionPolicy
) -> JoinSpec:
    """The join that wrote a state; `stored` are the columns of its runs, asked for only where needed."""
    known = facts.get("inputs")
    inputs = known or [{} for _ in identity["inputs"]]
    if known:
        schemas = [pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(one["schema"]))) for one in known]
    else:
        schemas = _schemas_from_runs(identity, list(stored))
    return JoinSpec(
        facts.get("name", "join"),
        tuple(
            _input(name, identity, schema, told)
            for name, schema, told in zip(identity["inputs"], schemas, inputs, strict=True)
        ),
        pa.schema([]),
        join_type(identity.get("how", "inner"), len(identity["inputs"])),
        compaction=compaction,
        buckets=identity["buckets"],
        hash=identity["hash"],
        grouping=None if facts.get("grouping") is None else _grouping_from_json(facts["grouping"]),
        feeds_join=identity.get("feeds a join", False),
        stamps=tuple(identity.get("stamps", ())),
    )


def _grouping_to_json(grouping: Grouping) -> dict[str, Any]:
    return {
        "joined": grouping.joined.serialize().to_pybytes().hex(),
        "keys": grouping.keys,
        "columns": grouping.columns,
        "aggregates": [(one.name, one.column, one.accumulator.says) for one in grouping.aggregates],
    }


def _grouping_from_json(saved: dict[str, Any]) -> Grouping:
    joined = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(saved["joined"])))
    aggregates = []
    for name, column, function in saved["aggregates"]:
        dtype = pa.int64() if column == ALL_ROWS else joined.field(column).type
        aggregates.append(Aggregate(name, column, FUNCTIONS[function](dtype)))
    return Grouping(joined, tuple(saved["keys"]), tuple(saved["columns"]), tuple(aggregates))


def _input(name: str, identity: dict[str, Any], schema: pa.Schema, told: dict[str, Any]) -> InputSpec:
    types: dict[str, list[pa.DataType]] = {"k": [], "p": []}
    for field in schema:
        if field.name[0] in types:
            types[field.name[0]].append(field.type)
    arrival = identity["arrival"].get(name)
    return InputSpec(
        name,
        Layout(tuple(types["k"]), "t" in schema.names, tuple(types["p"]), until="d" in schema.names),
        tuple(column.partition(":")[0] for column in identity["columns"][name]),
        window_us=identity["windows (us)"][name],
        lateness_us=told.get("lateness (us)", 0),
        idle_us=told.get("idle (us)"),
        unique=name in identity["unique"],
        partitions=told.get("partitions", 1),
        arrival=None if arrival is None else _arrival(arrival),
        partitioned=arrival is not None and arrival.endswith("in each partition"),
        closes=told.get("closes"),
        forwarded=tuple(told.get("forwarded", ())),
    )


def _arrival(text: str) -> Arrival:
    """The declaration that an identity wrote down.

    >>> _arrival("Ordered(descending=True, slack=2) in each partition")
    Ordered(descending=True, slack=2)
    """
    slack = int(re.findall(r"slack=(\d+)", text)[0])
    return Clustered(slack) if text.startswith("Clustered") else Ordered("descending=True" in text, slack)


def _schemas_from_runs(identity: dict[str, Any], stored: list[pa.Schema]) -> list[pa.Schema]:
    """The columns of each input, where only its runs and the texts of the key's types tell."""
    texts = identity["key types"]
    keys = next(
        (
            list(each)[first : first + len(texts)]
            for each in stored
            if (first := each.get_field_index("k0")) >= 0
        ),
        None,
    )
    keys = keys or [pa.field(f"k{i}", _type(text)) for i, text in enumerate(texts)]
    found = []
    for name in identity["inputs"]:
        head = [
            pa.field("h", pa.int64()),
            *([pa.field("t", pa.int64())] if name in identity["times"] else []),
        ]
        payload = identity["columns"][name][len(texts) :]
        whole = [*(field.name for field in (*head, *keys)), *(f"p{i}" for i in range(len(payload)))]
        types = [column.partition(": ")[2] for column in payload]
        same = (
            each
            for each in stored
            if each.names == whole and [str(dtype) for dtype in each.types[-len(types) :]] == types
        )
        no_rows = pa.schema([*head, *keys, *(pa.field(f"p{i}", pa.null()) for i in range(len(payload)))])
        found.append(next(same, no_rows))
    return found


def _type(text: str) -> pa.DataType:
    try:
        return _ALIASES.get(text) or pa.type_for_alias(text)
    except ValueError:
        raise StateFormatError(
            f"this state is of an older version and says of its key only that it is a {text}; "
            "run its query for one batch with this version, then read it again"
        ) from None
