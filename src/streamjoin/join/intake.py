"""Local intake: decodes a user's Arrow table and hands it to the shared core (`join.row_intake`).

Keys are cast to the join's common types and hashed, event times become microseconds. On Spark the JVM
does this casting and hashing and `spark.ingest` calls the same core.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from streamjoin.columnar.batch import NO_TIME, Batch, Ints, Layout
from streamjoin.columnar.keys import canonical, cast_by_position, hash_keys
from streamjoin.columnar.types import keeps_apart, plain
from streamjoin.declare.punctuation_source import Condition, Read
from streamjoin.declare.stream import Stream
from streamjoin.errors import BadInput, InvalidJoin
from streamjoin.join.arrivals import Arrivals, Positions
from streamjoin.join.forwarded_punctuations import punctuation_rows
from streamjoin.join.row_intake import DecodedRows, RowIntake, offsets
from streamjoin.punctuation import (
    ANY,
    Constant,
    Enumeration,
    Null,
    Pattern,
    Punctuation,
    Range,
    check,
    simplify,
)
from streamjoin.state.closed_keys import KeyPatterns

Hash = Callable[[Sequence[Any]], Ints]


@dataclass
class Intake:
    """Turns tables of one stream into arrivals; counts its rows where only that tells their order."""

    stream: Stream
    layout: Layout
    hash: Hash = hash_keys
    keep_unkeyed: bool = False  # rows with null keys are results of their own
    monitored: bool = True

    def __post_init__(self) -> None:
        self.arrived = 0
        self.core = RowIntake.of(
            self.stream, self.layout, keep_unkeyed=self.keep_unkeyed, monitored=self.monitored
        )

    def arrivals(self, table: pa.Table | pa.RecordBatch) -> Arrivals:
        """One table, in the order in which its rows came."""
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise BadInput(
                f"stream {self.stream.name!r}: pushed a {type(table).__name__}; push a pyarrow.Table"
            )
        self._check_columns(table)
        source = self.core.source
        reads = {} if source is None else source.reads(self.stream)
        decoded = replace(
            self._decoded(table),
            time=self._times(table),
            until=pa.array(self._stamp(table, 1)) if self.layout.until else None,
            at=self._positions(table),
            read={label: self._read(table, column) for label, column in reads.items()},
        )
        return self.core.arrivals(decoded)

    def _decoded(self, table: pa.Table) -> DecodedRows:
        """The keys and other columns of a table, without its times and positions."""
        keys = self._keys(table)
        payload = [
            self._column(table, name, dtype)
            for name, dtype in zip(self.stream.payload, self.layout.payload_types, strict=True)
        ]
        names = self.stream.wildcards_for_key
        return DecodedRows(
            pa.array(self.hash(keys)),
            keys,
            payload,
            named={name: self._column(table, name, self.stream.type_of(name)) for name in names},
        )

    def punctuation(self, patterns: KeyPatterns) -> Arrivals:
        """A punctuation on the key columns, as arrivals of its own."""
        nothing = Arrivals.nothing(self.layout)
        listed = [_constants(pattern) for pattern in patterns]
        if any(values is None for values in listed):
            return replace(nothing, patterns=(patterns,))
        rows = list(itertools.product(*(values or () for values in listed)))
        if not rows:
            return nothing
        columns = zip(*rows, strict=True)
        arrays = [
            pa.array(column, dtype) for column, dtype in zip(columns, self.layout.key_types, strict=True)
        ]
        return replace(nothing, keys=self.key_batch(arrays))

    def key_patterns(self, punctuation: Any) -> Sequence[Pattern] | None:
        """The patterns of a punctuation over all columns for those it names; None where it closes none."""
        schema = self.stream.schema
        if not isinstance(punctuation, Punctuation):
            raise BadInput(
                f"stream {self.stream.name!r}: {punctuation!r} is no Punctuation; name the key columns, "
                f"as in punctuate({self.stream.name!r}, {self.stream.key[0]}=…)"
            )
        if len(punctuation.patterns) != len(schema):
            raise BadInput(
                f"stream {self.stream.name!r}: punctuation {punctuation.text()} has "
                f"{len(punctuation.patterns)} patterns, the stream {len(schema)} columns; give one for each"
            )
        positions = [schema.names.index(name) for name in self.stream.punctuated_columns]
        patterns = punctuation.key_patterns(positions)
        for i, one in enumerate(punctuation.patterns):
            if i not in positions:
                check(one, schema.field(i).type)
        return patterns if punctuation.closes_key(positions) else None

    def in_key_types(self, given: Sequence[Pattern]) -> KeyPatterns:
        """Patterns of the key columns with their values in the join's common types.

        A value may be one of the stream's own column, or already one of the common type.
        """
        own = [self.stream.type_of(name) for name in self.stream.key]
        return tuple(
            simplify(widened(one, mine, common))
            for one, mine, common in zip(given, own, self.layout.key_types, strict=True)
        )

    def from_patterns(self, given: Sequence[Pattern]) -> Arrivals:
        """A punctuation, one pattern for each column it names, as arrivals of its own."""
        stream = self.stream
        named = dict(zip(stream.punctuated_columns, given, strict=True))
        if stream.punctuation_key is not None:
            named = {
                name: widened(one, stream.type_of(name), stream.type_of(name)) for name, one in named.items()
            }
        if all(named[name] == ANY for name in stream.wildcards_for_key):
            return self.punctuation(self.in_key_types([named.get(name, ANY) for name in stream.key]))
        columns = [named.get(name, ANY) for name in (*stream.key, *stream.forwarded)]
        listed = [(None,) if one == ANY else _constants(one) for one in columns]
        nothing = Arrivals.nothing(self.layout)
        ranges = any(values is None for values in listed)  # these are not forwarded
        if ranges or any(named[name] != ANY for name in stream.wildcards_for_later):
            return nothing
        rows = list(itertools.product(*(values or () for values in listed)))
        types = [stream.type_of(name) for name in (*stream.key, *stream.forwarded)]
        arrays = [pa.array([row[i] for row in rows], dtype) for i, dtype in enumerate(types)]
        return replace(nothing, forwarded=punctuation_rows(arrays, np.zeros(len(rows), np.int64)))

    def with_propagated(self, table: pa.Table, result: Arrivals) -> Arrivals:
        """With punctuations that an upstream join propagates: values of columns, null is a wildcard."""
        absent = [pa.nulls(len(table), one.type) for one in self.stream.schema]
        names = self.stream.schema.names
        columns = [
            table.column(name) if name in table.column_names else nulls
            for name, nulls in zip(names, absent, strict=True)
        ]
        decoded = self._decoded(pa.table(columns, names))
        return self.core.with_punctuations(result, decoded, np.arange(len(table)), null_is_wildcard=True)

    def _check_columns(self, table: pa.Table) -> None:
        for name in self.stream.schema.names:
            if table.column_names.count(name) > 1:
                raise BadInput(
                    f"stream {self.stream.name!r}: the pushed table has two columns {name!r}; rename one"
                )
            if name not in table.column_names:
                raise BadInput(
                    f"stream {self.stream.name!r}: the pushed table has no column {name!r} "
                    f"(it has {', '.join(table.column_names) or 'none'}); push tables of the declared schema"
                )

    def _column(self, table: pa.Table, name: str, dtype: pa.DataType) -> Any:
        column = table.column(name)
        self._check_fields(name, column.type)
        rounded = not keeps_apart(plain(self.stream.type_of(name)), dtype)
        return read_as(column, dtype, f"stream {self.stream.name!r}, column {name!r}", rounded=rounded)

    def _check_fields(self, name: str, pushed: pa.DataType) -> None:
        """Fields of a struct are known by their place, so their names must be those declared."""
        declared = self.stream.type_of(name)
        if pa.types.is_struct(pushed) and pa.types.is_struct(declared):
            here, there = ([one.name for one in dtype] for dtype in (pushed, declared))
            if here != there:
                raise BadInput(
                    f"stream {self.stream.name!r}, column {name!r} has the fields {', '.join(here)}, "
                    f"declared are {', '.join(there)}; push tables of the declared schema"
                )

    def _read(self, table: pa.Table, column: Read) -> Any:
        """A column that the punctuation source reads, or a condition tested on every row."""
        if isinstance(column, Condition):
            return self._tested(table, column.test)
        return self._column(table, column, self.stream.type_of(column))

    def _tested(self, table: pa.Table, condition: Any) -> Any:
        test = pc.field(condition) if isinstance(condition, str) else condition
        declared = f"{self.stream.punctuation.name if self.stream.punctuation else ''}({condition!r})"
        try:
            flags = ds.dataset(table).scanner(columns={"m": test}).to_table().column(0).combine_chunks()
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidJoin(
                f"stream {self.stream.name!r}: {declared} cannot be tested ({error}); "
                "give a boolean column's name or a pyarrow expression"
            ) from error
        if not pa.types.is_boolean(flags.type):
            raise InvalidJoin(f"stream {self.stream.name!r}: {declared} is {flags.type}; give a condition")
        return flags

    def _keys(self, table: pa.Table) -> list[Any]:
        return [
            canonical(self._column(table, name, dtype))
            for name, dtype in zip(self.stream.key, self.layout.key_types, strict=True)
        ]

    def _times(self, table: pa.Table) -> Ints | None:
        if self.stream.time is None:
            return None
        if self.stream.stamps:
            return self._stamp(table, 0)
        column = self._column(table, self.stream.time, self.stream.type_of(self.stream.time))
        micros = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False).view(
            pa.int64()
        )
        times: Ints = pc.fill_null(micros, NO_TIME).to_numpy(zero_copy_only=False)
        return times

    def _stamp(self, table: pa.Table, number: int) -> Ints:
        stamps: Ints = self._column(table, self.stream.stamps[number], pa.int64()).to_numpy()
        return stamps

    def _positions(self, table: pa.Table) -> Positions | None:
        names = self.stream.sequence
        if names:
            offset = offsets(self._column(table, names[-1], pa.int64()), self.stream.name)
            partition = np.zeros(len(table), np.int64)
            if len(names) == 2:
                codes = self._column(table, names[0], self.stream.type_of(names[0]))
                partition = self.hash([canonical(codes)])
            return Positions(partition, offset)
        if self.stream.arrival is not None:
            offset = np.arange(self.arrived, self.arrived + len(table))
            self.arrived += len(table)
            return Positions(np.zeros(len(table), np.int64), offset)
        return None

    def key_batch(self, keys: list[Any]) -> Batch:
        """Rows that are only keys, of the join's key types."""
        keys = [canonical(key) for key in keys]
        return self.layout.keys_only.batch([pa.array(self.hash(keys)), *keys])


def widened(given: Pattern, own: pa.DataType, common: pa.DataType) -> Pattern:
    """A pattern over a column's own type with its values in the join's common type."""
    try:
        checked = check(given, own)
    except BadInput:
        return check(given, common)
    own = plain(own)

    def wide(value: Any) -> Any:
        if value is None:
            return None
        found = cast_by_position(pa.array([value], own), common, rounded=True)[0].as_py()
        if not keeps_apart(own, common) and found != value:
            raise BadInput(
                f"a punctuation of {value!r}, but the join compares keys as {common}, and {value!r} is no "
                f"{common}: it would close other keys; cast the key columns to one type"
            )
        return found

    if isinstance(checked, Constant):
        return Constant(wide(checked.value))
    if isinstance(checked, Enumeration):
        return Enumeration(tuple(map(wide, checked.values)))
    if isinstance(checked, Range):
        return Range(wide(checked.low), wide(checked.high), checked.low_closed, checked.high_closed)
    return checked


def _constants(pattern: Pattern) -> tuple[Any, ...] | None:
    """The values of a pattern that names single values, None for any other."""
    if isinstance(pattern, Constant):
        return (pattern.value,)
    if isinstance(pattern, Null):
        return (None,)
    return tuple(pattern.values) if isinstance(pattern, Enumeration) else None


def read_as(column: pa.ChunkedArray, dtype: pa.DataType, what: str, *, rounded: bool = False) -> Any:
    """A column of a user's table as one array of the declared type."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    try:
        return cast_by_position(array, dtype, rounded=rounded)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadInput(
            f"{what}: cannot read {array.type} as {dtype} ({error}); push tables of the declared schema"
        ) from error
