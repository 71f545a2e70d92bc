"""Results and punctuations of a join on their way into the next one, in the same query.

    first join, packed → unpack (this file) → select (JVM: cast, hash) → pack (this file) → second join

Between the two, a row of the DataFrame is a result, a finished key (its constants in the key columns),
something wide that one bucket of the first join has finished, as text, or how far its event time has
got. The columns `PASSED` say which. The second join counts the buckets that have told of a wide part; a
finished key needs one, the bucket that held it. Both stateful operators work in the same micro-batch, so
the second has rows and punctuations of the first as soon as they are made, rows first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from streamjoin.columnar.batch import Mask, concat
from streamjoin.columnar.keys import valid
from streamjoin.errors import InvalidJoin
from streamjoin.join.arrivals import Arrivals, Positions
from streamjoin.join.intake import widened
from streamjoin.join.spec import JoinSpec
from streamjoin.punctuation import ANY, Punctuation, simplify
from streamjoin.spark.ingest import Packer
from streamjoin.spark.outputs import CARRIED, PROGRESS, PUNCTUATIONS, ROWS, WIDE, Packed
from streamjoin.state.closed_keys import KeyPatterns, is_everything
from streamjoin.state.codec import decode_batch

if TYPE_CHECKING:
    from streamjoin.spark.frame import SparkJoin

PASSED = {"_passed": T.IntegerType(), "_passed_text": T.StringType(), "_passed_by": T.LongType()}


def forward(join: SparkJoin, *, keys: bool) -> DataFrame:
    """The output columns of a join that feeds another, and `PASSED`; finished `keys` where asked."""
    output = join.output_type()
    clashing = [name for name in output.names if name in PASSED]
    if clashing:
        raise InvalidJoin(
            f"join {join.spec.name!r} has a result column {', '.join(clashing)}, which a join that follows "
            "needs for itself; rename it"
        )
    kinds = [ROWS, WIDE, PROGRESS, CARRIED, *([PUNCTUATIONS] if keys else [])]
    packed = join.emitted(Packed()).where(F.col("kind").isin(kinds)).select("kind", "input", "blob")
    tagged = T.StructType([*output.fields, *(T.StructField(name, dtype) for name, dtype in PASSED.items())])
    found = packed.mapInArrow(Unpack(join.spec), tagged)
    return join.passing(found, others=F.col("_passed") != ROWS)


@dataclass(frozen=True)
class Unpack:
    """Packed elements of a join as rows in its output columns, followed by `PASSED`."""

    spec: JoinSpec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What `mapInArrow` calls for every task; columns kind, input, blob."""
        for batch in batches:
            for kind, bucket, blob in zip(*batch.columns, strict=True):
                yield self._element(kind.as_py(), bucket.as_py(), decode_batch(blob.as_buffer()))

    def _element(self, kind: int, bucket: int | None, data: pa.RecordBatch) -> pa.RecordBatch:
        count = data.num_rows
        columns: dict[str, Any] = {}
        if kind in (ROWS, CARRIED):
            columns = dict(zip(data.schema.names, data.columns, strict=True))
        elif kind == PUNCTUATIONS:
            columns = dict(zip(self.spec.key_names, data.columns[1:], strict=True))
        arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in self.spec.emits]
        arrays += [
            pa.array([kind] * count, pa.int32()),
            data.column(0) if kind == WIDE else pa.nulls(count, pa.string()),
            data.column(0) if kind == PROGRESS else pa.array([bucket] * count, pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(arrays, names=[*self.spec.emits.names, *PASSED])


@dataclass(frozen=True)
class PassedPacker(Packer):
    """Packs results of another join with its punctuations, which come in the columns `PASSED`."""

    places: tuple[int, ...] | None = None
    key_types: tuple[pa.DataType, ...] = ()  # of the first join

    def arrivals(self, batch: pa.RecordBatch) -> Arrivals:
        """One record batch from the JVM, sorted out."""
        kinds = batch.column("_passed")
        result = super().arrivals(batch.filter(pc.equal(kinds, ROWS)))
        finished = batch.filter(pc.equal(kinds, PUNCTUATIONS))
        if finished.num_rows and self.places is not None:
            columns = {field.name: finished.column(i) for i, field in enumerate(finished.schema)}
            keys = self.layout.keys_only.batch([columns["h"], *self.keys(columns)])
            result = replace(result, keys=concat(keys.layout, [result.keys, keys]))
        passed = batch.filter(pc.equal(kinds, CARRIED))
        if passed.num_rows:
            result = self._with_carried(result, passed)
        progress = batch.filter(pc.equal(kinds, PROGRESS))
        if progress.num_rows:  # all buckets below know the same
            result = replace(result, watermark_us=pc.min(progress.column("_passed_by")).as_py())
        told = batch.filter(pc.equal(kinds, WIDE))
        return self._with_wide(result, told) if told.num_rows else result

    def _with_carried(self, result: Arrivals, passed: pa.RecordBatch) -> Arrivals:
        """Promises about the key here, or a later one; each bucket below speaks for itself."""
        columns = {field.name: passed.column(i) for i, field in enumerate(passed.schema)}
        by = columns["_passed_by"].to_numpy()
        named: Mask = np.zeros(passed.num_rows, np.bool_)
        for n in self.forwarded:
            named |= valid([columns[f"p{n}"]])
        at = Positions(by, np.zeros(len(by), np.int64))
        keys, rows = self.keys(columns), np.arange(len(by))
        result = self.with_later(result, columns, keys, (rows[named], at))
        wide = replace(self, null_is_wildcard=True)
        return wide.with_marked(result, columns["h"], keys, (rows[~named], at))

    def _with_wide(self, result: Arrivals, told: pa.RecordBatch) -> Arrivals:
        said = [self._patterns(text) for text in told.column("_passed_text").to_pylist()]
        counted = [i for i, patterns in enumerate(said) if patterns is not None]
        by = told.column("_passed_by").to_numpy()[counted]
        before = np.empty(0, np.int64) if result.patterns_at is None else result.patterns_at.partition
        by = np.concatenate([before, by])
        return replace(
            result,
            patterns=(*result.patterns, *(patterns for patterns in said if patterns is not None)),
            patterns_at=Positions(by, np.zeros(len(by), np.int64)),
        )

    def _patterns(self, text: str) -> KeyPatterns | None:
        """What was told as promise of the stream; None where it says nothing of its key."""
        given = Punctuation.parse(text, self.key_types).patterns
        if self.places is None:
            return tuple(ANY for _ in self.layout.key_types) if is_everything(given) else None
        return tuple(
            simplify(widened(given[place], self.key_types[place], common))
            for place, common in zip(self.places, self.layout.key_types, strict=True)
        )
