"""Outputs of a bucket on their way back to columns, in one of two encodings.

`RowsOnly` emits result rows as they are: the columns go from Arrow to the JVM once, under names by place
(c0, c1…). It is what `dataframe()` uses where all types allow it. Timestamps travel as microseconds, because
pandas frames would convert them value by value.

`Packed` emits few rows, each an Arrow blob with its kind, and an unpack stage makes columns of
them. It transports rows, punctuations and violations side by side (`elements()`, `write()`), and rows
of nested types. Range punctuations and patterns (PATTERNS) leave as texts with the number of their bucket. A
join that feeds another also emits punctuations on a later key (FORWARDED) in the same way, and its output
watermark (WATERMARK).

In both, each bucket adds one row with all figures of its batch as a text, in a column that is null elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa

from streamjoin.join.outputs import (
    FinishedKeys,
    FinishedPatterns,
    Forwarded,
    Output,
    OutputWatermark,
    Results,
)
from streamjoin.join.propagation import punctuations_of
from streamjoin.join.spec import JoinSpec
from streamjoin.plan.output import free_names
from streamjoin.punctuation import Punctuation
from streamjoin.state.codec import batch_bytes, decode_batch

ROWS, PUNCTUATIONS, VIOLATIONS, PATTERNS, WATERMARK, FORWARDED = range(6)
KIND_NAMES = ("row", "punctuation", "violation", "punctuation")
FIGURES = "_figures"  # null on everything else
_FIGURES = pa.field(FIGURES, pa.string())
FRAME_ROWS = 100_000


@dataclass(frozen=True)
class RowsOnly:
    """Result rows in their own columns; everything else but the metrics is left out."""

    output: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        fields = [
            pa.field(f"c{i}", pa.int64() if pa.types.is_timestamp(field.type) else field.type)
            for i, field in enumerate(self.output)
        ]
        return pa.schema([*fields, _FIGURES])

    def frames(self, output: Output, bucket: int) -> Iterator[pd.DataFrame]:
        """One output element of a bucket as frames of `schema`."""
        if isinstance(output, Results):
            rows = output.rows
            columns = [
                column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column
                for column in rows.columns
            ]
            columns.append(pa.nulls(rows.num_rows, pa.string()))
            table = pa.table(columns, schema=self.schema)
            for start in range(0, len(table), FRAME_ROWS):
                yield _frame(table.slice(start, FRAME_ROWS))

    def figures(self, text: str) -> pd.DataFrame:
        """One row with the figures of a bucket."""
        return _figures(text, self.schema)


@dataclass(frozen=True)
class Packed:
    """Every element as one row: its kind, its input and reason where it has them, an Arrow blob."""

    schema: ClassVar[pa.Schema] = pa.schema(
        [
            pa.field("kind", pa.int32()),
            pa.field("input", pa.int32()),
            pa.field("reason", pa.string()),
            pa.field("blob", pa.binary()),
            _FIGURES,
        ]
    )

    def frames(self, output: Output, bucket: int) -> Iterator[pd.DataFrame]:
        """One output element of a bucket as a frame of `schema`."""
        kind, number, reason = ROWS, None, None
        if isinstance(output, Results):
            data = output.rows
        elif isinstance(output, FinishedKeys):
            kind, data = PUNCTUATIONS, output.keys.data
        elif isinstance(output, FinishedPatterns):
            texts = [Punctuation(patterns).text() for patterns in output.patterns]
            kind, number, data = PATTERNS, bucket, pa.RecordBatch.from_arrays([pa.array(texts)], ["text"])
        elif isinstance(output, Forwarded):
            kind, number, data = FORWARDED, bucket, output.punctuations
        elif isinstance(output, OutputWatermark):
            data = pa.RecordBatch.from_arrays([pa.array([output.time_us])], ["time"])
            kind, number = WATERMARK, bucket
        else:
            kind, number, reason, data = VIOLATIONS, output.input, output.reason, output.rows.data
        values = [kind, number, reason, batch_bytes(data).to_pybytes(), None]
        yield _frame(pa.table([[value] for value in values], schema=self.schema))

    def figures(self, text: str) -> pd.DataFrame:
        """One row with the figures of a bucket."""
        return _figures(text, self.schema)


Emitter = RowsOnly | Packed


def _frame(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper=pd.ArrowDtype)


def _figures(text: str, schema: pa.Schema) -> pd.DataFrame:
    columns = [pa.nulls(1, field.type) for field in list(schema)[:-1]]
    return _frame(pa.table([*columns, pa.array([text])], schema=schema))


def can_be_direct(output: pa.Schema) -> bool:
    """Whether every column can be emitted as it is: pandas converts nested ones value by value."""
    return not any(pa.types.is_nested(field.type) or pa.types.is_null(field.type) for field in output)


def unpack_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Results of packed rows that are all of kind row; for `mapInArrow` over a column `blob`."""
    for batch in batches:
        for blob in batch.column(0):
            yield decode_batch(blob.as_buffer())


@dataclass(frozen=True)
class UnpackElements:
    """Every packed element, in the output columns and the four tags."""

    spec: JoinSpec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What `mapInArrow` calls for every task; columns kind, input, reason, blob."""
        for batch in batches:
            for i in range(batch.num_rows):
                kind = batch.column(0)[i].as_py()
                data = decode_batch(batch.column(3)[i].as_buffer())
                yield self._element(kind, batch.column(1)[i].as_py(), batch.column(2)[i].as_py(), data)

    def _element(self, kind: int, number: int, reason: str | None, data: pa.RecordBatch) -> pa.RecordBatch:
        texts, name = None, None
        columns: dict[str, Any] = {}
        if kind == ROWS:
            columns = dict(zip(data.schema.names, data.columns, strict=True))
        elif kind == PUNCTUATIONS:
            keys = data.columns[1:]
            columns = dict(zip(self.spec.key_names, keys, strict=True))
            texts = [punctuation.text() for punctuation in punctuations_of(keys)]
        elif kind == PATTERNS:
            texts = data.column(0).to_pylist()
        else:
            name = self.spec.inputs[number].name
            columns = self._violation_columns(number, data)
        count = data.num_rows
        arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in self.spec.emits]
        tags = [
            pa.array([KIND_NAMES[kind]] * count, pa.string()),
            pa.array([name] * count, pa.string()),
            pa.nulls(count, pa.string()) if texts is None else pa.array(texts, pa.string()),
            pa.array([reason] * count, pa.string()),
        ]
        return pa.RecordBatch.from_arrays([*arrays, *tags], schema=elements_schema(self.spec.emits))

    def _violation_columns(self, number: int, data: pa.RecordBatch) -> dict[str, Any]:
        spec = self.spec.inputs[number]
        first = spec.layout.first_key
        names = [*self.spec.key_names, *self.spec.payload_names(number)]
        # not strict: a semi join does not emit the columns of its right input
        found = dict(zip(names, data.columns[first:], strict=False))
        grouping = self.spec.grouping
        if grouping is None:
            return found
        return {name: found[name] for name in grouping.columns if name in found}


def tags(output: pa.Schema) -> tuple[str, ...]:
    """The columns that tell what an element is, with names that no column of the output has."""
    return free_names(("_kind", "_input", "_punctuation", "_reason"), output.names)


def elements_schema(output: pa.Schema) -> pa.Schema:
    """The columns of the tagged stream."""
    return pa.schema([*output, *(pa.field(tag, pa.string()) for tag in tags(output))])
