"""The edge of the operator: a user's table becomes `Arrivals`.

Rows marked as punctuations are taken out, keys are cast to the join's common types and hashed,
null keys are counted and left behind, event times become microseconds. On Spark the JVM does the
casting and hashing; this is the same step in plain Arrow.
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

from streamjoin.columnar.batch import NO_TIME, Batch, Ints, Layout, Mask
from streamjoin.columnar.keys import canonical, cast_by_position, hash_keys, valid
from streamjoin.declare.stream import Closing, Marked, Stream
from streamjoin.errors import BadInput, InvalidJoin
from streamjoin.join.arrival_order import with_tracks
from streamjoin.join.arrivals import Arrivals, Positions
from streamjoin.join.forwarded_punctuations import punctuation_rows
from streamjoin.join.statistics.monitor import look
from streamjoin.punctuation import ANY, Constant, Enumeration, Pattern, Punctuation, Range, check, simplify
from streamjoin.state.closed_keys import KeyPatterns

Hash = Callable[[Sequence[Any]], Ints]


@dataclass(frozen=True, slots=True)
class _Marks:
    """Rows of a table that are punctuations, with the table's keys and positions."""

    keys: list[Any]
    at: Positions | None
    rows: Ints


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

    def arrivals(self, table: pa.Table | pa.RecordBatch) -> Arrivals:
        """One table, in the order in which its rows came."""
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise BadInput(
                f"stream {self.stream.name!r}: pushed a {type(table).__name__}; push a pyarrow.Table"
            )
        self._check_columns(table)
        marks = self._marks(table)
        keys = self._keys(table)
        at = self._positions(table)
        data = np.flatnonzero(~marks) if marks is not None else np.arange(len(table))
        has_key = valid(keys)
        time = self._times(table)
        latest = None if self.stream.stamps else latest_time(time, data)
        rows_in = data[has_key[data]]
        rows = self._batch(table, keys, time, rows_in)
        result = Arrivals(
            rows,
            self.layout.keys_only.empty(),
            latest_us=latest,
            null_keys=len(data) - len(rows_in),
            unkeyed=self._batch(table, keys, time, data[~has_key[data]]) if self.keep_unkeyed else None,
            rows_at=None if at is None else at.take(rows_in),
            order=look(rows) if self.monitored and self.stream.arrival is None else None,
        )
        if marks is not None:
            result = self._with_marked(table, result, _Marks(keys, at, np.flatnonzero(marks)))
        source = self.stream.punctuation
        if isinstance(source, Closing):
            result = self._with_closing(result, self._closing(table, source.condition)[rows_in])
        if self.stream.arrival is not None and result.rows_at is not None:
            result = with_tracks(self.stream.arrival, result, result.rows_at)
        return result

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
        """What a punctuation over all columns says of those that promises name; None where it closes none."""
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
        positions = [schema.names.index(name) for name in self.stream.speaks_of]
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

    def said(self, given: Sequence[Pattern]) -> Arrivals:
        """A promise, one pattern for each column it names, as arrivals of its own."""
        stream = self.stream
        own = [widened(one, stream.type_of(name), stream.type_of(name)) for name, one in self._named(given)]
        said = dict(zip(stream.speaks_of, given if stream.punctuated is None else own, strict=True))
        if all(said[name] == ANY for name in stream.unnamed):
            return self.punctuation(self.in_key_types([said.get(name, ANY) for name in stream.key]))
        columns = [said.get(name, ANY) for name in (*stream.key, *stream.forwarded)]
        listed = [(None,) if one == ANY else _constants(one) for one in columns]
        nothing = Arrivals.nothing(self.layout)
        if any(values is None for values in listed) or any(said[name] != ANY for name in stream.unheard):
            return nothing  # ranges are not passed on
        rows = list(itertools.product(*(values or () for values in listed)))
        types = [stream.type_of(name) for name in (*stream.key, *stream.forwarded)]
        arrays = [pa.array([row[i] for row in rows], dtype) for i, dtype in enumerate(types)]
        return replace(nothing, forwarded=punctuation_rows(arrays, np.zeros(len(rows), np.int64)))

    def _named(self, given: Sequence[Pattern]) -> list[tuple[str, Pattern]]:
        return [] if self.stream.punctuated is None else list(zip(self.stream.speaks_of, given, strict=True))

    def told(self, table: pa.Table, result: Arrivals) -> Arrivals:
        """With what a lower join promises of its results: values of columns, null is any value."""
        absent = [pa.nulls(len(table), one.type) for one in self.stream.schema]
        names = self.stream.schema.names
        columns = [
            table.column(name) if name in table.column_names else nulls
            for name, nulls in zip(names, absent, strict=True)
        ]
        whole = pa.table(columns, names)
        marks = _Marks(self._keys(whole), None, np.arange(len(whole)))
        return self._with_marked(whole, result, marks, may_be_wide=True)

    def _of_later(self, table: pa.Table, result: Arrivals, marks: _Marks) -> tuple[Arrivals, _Marks]:
        """The punctuation rows that say something of the key, and on their way those for later operators."""
        stream = self.stream
        if stream.punctuated is None:
            return result, marks
        chosen = pa.array(marks.rows)

        def named(names: Sequence[str]) -> Mask:
            mask: Mask = np.zeros(len(marks.rows), np.bool_)
            for name in names:
                mask |= valid([self._column(table, name, stream.type_of(name)).take(chosen)])
            return mask

        about_key = ~named(stream.unnamed)
        keys = [
            key if name in stream.punctuated else pa.nulls(len(table), key.type)
            for name, key in zip(stream.key, marks.keys, strict=True)
        ]
        on_way = marks.rows[~about_key & ~named(stream.unheard)]
        if stream.forwarded and len(on_way):
            columns = [self._column(table, name, stream.type_of(name)) for name in stream.forwarded]
            by = np.zeros(len(table), np.int64) if marks.at is None else marks.at.partition
            rows = punctuation_rows([*keys, *columns], by).take(pa.array(on_way))
            result = replace(result, forwarded=rows)
        return result, _Marks(keys, marks.at, marks.rows[about_key])

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
        return read_as(column, dtype, f"stream {self.stream.name!r}, column {name!r}")

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

    def _marks(self, table: pa.Table) -> Mask | None:
        source = self.stream.punctuation
        if not isinstance(source, Marked):
            return None
        flags = self._column(table, source.column, pa.bool_())
        marks: Mask = pc.fill_null(flags, False).to_numpy(zero_copy_only=False)
        return marks

    def _closing(self, table: pa.Table, condition: Any) -> Mask:
        test = pc.field(condition) if isinstance(condition, str) else condition
        try:
            flags = ds.dataset(table).scanner(columns={"m": test}).to_table().column(0).combine_chunks()
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidJoin(
                f"stream {self.stream.name!r}: closing({condition!r}) cannot be tested ({error}); "
                "give a boolean column's name or a pyarrow expression"
            ) from error
        if not pa.types.is_boolean(flags.type):
            raise InvalidJoin(
                f"stream {self.stream.name!r}: closing({condition!r}) is {flags.type}; give a condition"
            )
        closing: Mask = pc.fill_null(flags, False).to_numpy(zero_copy_only=False)
        return closing

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

    def _batch(self, table: pa.Table, keys: list[Any], time: Ints | None, rows: Ints) -> Batch:
        chosen = None if len(rows) == len(table) else pa.array(rows)

        def pick(column: Any) -> Any:
            return column if chosen is None else column.take(chosen)

        key_columns = [pick(key) for key in keys]
        columns = [pa.array(self.hash(key_columns))]
        if time is not None:
            columns.append(pa.array(time[rows]))
        if self.layout.until:
            columns.append(pa.array(self._stamp(table, 1)[rows]))
        columns += key_columns
        for name, dtype in zip(self.stream.payload, self.layout.payload_types, strict=True):
            columns.append(pick(self._column(table, name, dtype)))
        return self.layout.batch(columns)

    def key_batch(self, keys: list[Any]) -> Batch:
        """Rows that are only keys, of the join's key types."""
        keys = [canonical(key) for key in keys]
        return self.layout.keys_only.batch([pa.array(self.hash(keys)), *keys])

    def _with_marked(
        self, table: pa.Table, result: Arrivals, marks: _Marks, *, may_be_wide: bool = False
    ) -> Arrivals:
        result, marks = self._of_later(table, result, marks)
        if len(marks.rows) == 0:
            return result
        source = self.stream.punctuation
        may_be_wide |= isinstance(source, Marked) and source.null_is_wildcard
        single, wide, patterns = sort_marks(marks.keys, marks.rows, self.stream.name, may_be_wide=may_be_wide)
        return replace(
            result,
            keys=self.key_batch([key.take(pa.array(single)) for key in marks.keys]),
            keys_at=None if marks.at is None else marks.at.take(single),
            patterns=patterns,
            patterns_at=None if marks.at is None else marks.at.take(wide),
        )

    def _with_closing(self, result: Arrivals, closing: Mask) -> Arrivals:
        last = np.flatnonzero(closing)
        return replace(
            result,
            keys=result.rows.only_keys().take(last),
            keys_at=None if result.rows_at is None else result.rows_at.take(last),
        )


def widened(given: Pattern, own: pa.DataType, common: pa.DataType) -> Pattern:
    """A pattern over a column's own type with its values in the join's common type."""
    try:
        held = check(given, own)
    except BadInput:
        return check(given, common)
    own = own.value_type if pa.types.is_dictionary(own) else own

    def wide(value: Any) -> Any:
        return None if value is None else pa.scalar(value, own).cast(common).as_py()

    if isinstance(held, Constant):
        return Constant(wide(held.value))
    if isinstance(held, Enumeration):
        return Enumeration(tuple(map(wide, held.values)))
    if isinstance(held, Range):
        return Range(wide(held.low), wide(held.high), held.low_closed, held.high_closed)
    return held


def _constants(pattern: Pattern) -> tuple[Any, ...] | None:
    """The values of a pattern that names single values, None for any other."""
    if isinstance(pattern, Constant):
        return (pattern.value,)
    return tuple(pattern.values) if isinstance(pattern, Enumeration) else None


def sort_marks(
    keys: Sequence[Any], rows: Ints, name: str, *, may_be_wide: bool
) -> tuple[Ints, Ints, tuple[KeyPatterns, ...]]:
    """Punctuation rows by what they promise: single keys, and (null = any value) patterns.

    Returns the rows that name a single key, the others, and the patterns of those.
    """
    whole = valid(keys)[rows]
    if not whole.all() and not may_be_wide:
        raise BadInput(
            f"stream {name!r}: punctuation row {int(rows[~whole][0])} has a null key column; "
            "give it a key, or declare marked(…, null_is_wildcard=True)"
        )
    wide = rows[~whole]
    patterns = tuple(
        tuple(ANY if (value := key[row].as_py()) is None else Constant(value) for key in keys)
        for row in wide.tolist()
    )
    return rows[whole], wide, patterns


def read_as(column: pa.ChunkedArray, dtype: pa.DataType, what: str) -> Any:
    """A column of a user's table as one array of the declared type."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    try:
        return cast_by_position(array, dtype)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadInput(
            f"{what}: cannot read {array.type} as {dtype} ({error}); push tables of the declared schema"
        ) from error


def offsets(column: Any, stream: str) -> Ints:
    """The offsets of a sequence; every row must have one."""
    if column.null_count:
        row = int(np.flatnonzero(~valid([column]))[0])
        raise BadInput(
            f"stream {stream!r}: row {row} of the batch has no offset; give every row, also a punctuation, "
            "one in the sequence column"
        )
    found: Ints = column.to_numpy(zero_copy_only=False)
    return found


def latest_time(time: Ints | None, rows: Ints | Mask) -> int | None:
    """The greatest event time of the chosen rows, None where none has one."""
    chosen = None if time is None else time[rows]
    if chosen is None or len(chosen) == 0:
        return None
    latest = int(chosen.max())
    return None if latest == NO_TIME else latest
