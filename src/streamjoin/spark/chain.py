"""Propagation between two joins of one query: results and punctuations of the first become an input of the
next.

    first join, packed → unpack (this file) → select (JVM: cast, hash) → pack (this file) → second join

Between the two, a row of the DataFrame is a result, a closed key (its constants in the key columns), a range
punctuation of one bucket of the first join, as text, or that join's output watermark; the columns
`PROPAGATED` say which. A closed key takes effect at once, since one bucket has all its rows; a range takes
effect when every bucket of the first join has sent it. Both stateful operators work in the same micro-batch,
so the second receives rows and punctuations of the first as soon as they are made, rows first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from streamjoin.columnar.batch import concat
from streamjoin.join.arrivals import Arrivals, Positions
from streamjoin.join.intake import widened
from streamjoin.join.spec import JoinSpec
from streamjoin.plan.output import free_names
from streamjoin.punctuation import ANY, Punctuation, simplify
from streamjoin.spark.ingest import Packer
from streamjoin.spark.outputs import FORWARDED, PATTERNS, PUNCTUATIONS, ROWS, WATERMARK, Packed
from streamjoin.state.closed_keys import KeyPatterns, is_everything
from streamjoin.state.codec import decode_batch

if TYPE_CHECKING:
    from streamjoin.spark.frame import SparkJoin

PROPAGATED = {  # the last columns; with underscores before these names where a result has them
    "_propagated": T.IntegerType(),
    "_propagated_text": T.StringType(),
    "_propagated_by": T.LongType(),
}


def propagated_names(output: list[str]) -> tuple[str, ...]:
    """The names of `PROPAGATED` beside these columns."""
    return free_names(tuple(PROPAGATED), output)


def forward(join: SparkJoin, *, keys: bool) -> DataFrame:
    """The output columns of a join that feeds another, and `PROPAGATED`; its closed `keys` where asked."""
    output = join.output_type()
    names = propagated_names(output.names)
    kinds = [ROWS, PATTERNS, WATERMARK, FORWARDED, *([PUNCTUATIONS] if keys else [])]
    packed = join.emitted(Packed()).where(F.col("kind").isin(kinds)).select("kind", "input", "blob")
    added = [T.StructField(name, dtype) for name, dtype in zip(names, PROPAGATED.values(), strict=True)]
    found = packed.mapInArrow(Unpack(join.spec), T.StructType([*output.fields, *added]))
    return join.passing(found, others=F.col(names[0]) != ROWS)


@dataclass(frozen=True)
class Unpack:
    """Packed outputs of a join as rows in its output columns, followed by `PROPAGATED`."""

    spec: JoinSpec

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What `mapInArrow` calls for every task; columns kind, input, blob."""
        for batch in batches:
            for kind, bucket, blob in zip(*batch.columns, strict=True):
                yield self._element(kind.as_py(), bucket.as_py(), decode_batch(blob.as_buffer()))

    def _element(self, kind: int, bucket: int | None, data: pa.RecordBatch) -> pa.RecordBatch:
        count = data.num_rows
        columns: dict[str, Any] = {}
        if kind in (ROWS, FORWARDED):
            columns = dict(zip(data.schema.names, data.columns, strict=True))
        elif kind == PUNCTUATIONS:
            columns = dict(zip(self.spec.key_names, data.columns[1:], strict=True))
        arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in self.spec.emits]
        arrays += [
            pa.array([kind] * count, pa.int32()),
            data.column(0) if kind == PATTERNS else pa.nulls(count, pa.string()),
            data.column(0) if kind == WATERMARK else pa.array([bucket] * count, pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(
            arrays, names=[*self.spec.emits.names, *propagated_names(self.spec.emits.names)]
        )


@dataclass(frozen=True)
class PropagatedPacker(Packer):
    """Packs the results of another join and its punctuations, which are in the columns `PROPAGATED`."""

    key_positions: tuple[int, ...] | None = None
    key_types: tuple[pa.DataType, ...] = ()  # of the first join

    def arrivals(self, batch: pa.RecordBatch) -> Arrivals:
        """One record batch from the JVM, sorted out."""
        kinds = batch.column("_propagated")
        result = super().arrivals(batch.filter(pc.equal(kinds, ROWS)))
        closed = batch.filter(pc.equal(kinds, PUNCTUATIONS))
        if closed.num_rows and self.key_positions is not None:
            columns = {field.name: closed.column(i) for i, field in enumerate(closed.schema)}
            keys = self.layout.keys_only.batch([columns["h"], *self.keys(columns)])
            result = replace(result, keys=concat(keys.layout, [result.keys, keys]))
        forwarded = batch.filter(pc.equal(kinds, FORWARDED))
        if forwarded.num_rows:
            result = self._with_forwarded(result, forwarded)
        watermark = batch.filter(pc.equal(kinds, WATERMARK))
        if watermark.num_rows:  # the same from all buckets of the first join
            result = replace(result, watermark_us=pc.min(watermark.column("_propagated_by")).as_py())
        patterns = batch.filter(pc.equal(kinds, PATTERNS))
        return self._with_patterns(result, patterns) if patterns.num_rows else result

    def _with_forwarded(self, result: Arrivals, forwarded: pa.RecordBatch) -> Arrivals:
        """With punctuations on the key of this join or a later one, counted by the bucket that sent them."""
        by = forwarded.column("_propagated_by").to_numpy()
        given = replace(self.decoded(forwarded), at=Positions(by, np.zeros(len(by), np.int64)))
        return self.intake.with_punctuations(result, given, np.arange(len(by)), null_is_wildcard=True)

    def _with_patterns(self, result: Arrivals, texts: pa.RecordBatch) -> Arrivals:
        parsed = [self._patterns(text) for text in texts.column("_propagated_text").to_pylist()]
        counted = [i for i, patterns in enumerate(parsed) if patterns is not None]
        by = texts.column("_propagated_by").to_numpy()[counted]
        before = np.empty(0, np.int64) if result.patterns_at is None else result.patterns_at.partition
        by = np.concatenate([before, by])
        return replace(
            result,
            patterns=(*result.patterns, *(patterns for patterns in parsed if patterns is not None)),
            patterns_at=Positions(by, np.zeros(len(by), np.int64)),
        )

    def _patterns(self, text: str) -> KeyPatterns | None:
        """A punctuation of the first join on the key of this input; None where it closes no key of it."""
        given = Punctuation.parse(text, self.key_types).patterns
        if self.key_positions is None:
            return tuple(ANY for _ in self.layout.key_types) if is_everything(given) else None
        return tuple(
            simplify(widened(given[place], self.key_types[place], common))
            for place, common in zip(self.key_positions, self.layout.key_types, strict=True)
        )
