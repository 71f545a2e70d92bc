"""Assembly: the output columns of matched rows; the key once, then each component's other columns.

A component is a batch and one row number per result; all components have the same length.
Cost: one gather per output column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints

Component = tuple[Batch, Ints]


def pad(component: Component, first: int, schema: pa.Schema, *, own_keys: bool = False) -> pa.RecordBatch:
    """Rows of one input in the output's columns, its own from column `first` on, nulls in the others.

    With `own_keys` each input's own columns begin with its key.
    """
    batch, row_numbers = component
    rows = pa.array(row_numbers)
    columns = [column.take(rows) for column in (*batch.keys, *batch.payload)]
    keys, own = columns[: len(batch.keys)], columns[0 if own_keys else len(batch.keys) :]
    before = [pa.nulls(len(rows), field.type) for field in list(schema)[len(keys) : first]]
    after = [pa.nulls(len(rows), field.type) for field in list(schema)[first + len(own) :]]
    return pa.RecordBatch.from_arrays([*keys, *before, *own, *after], schema=schema)


def assemble(
    components: Sequence[Component], schema: pa.Schema, further: Sequence[Any] = (), *, own_keys: bool = False
) -> pa.RecordBatch:
    """One record batch of results; keys are taken from the first component, `further` columns follow."""
    first, first_rows = components[0]
    columns: list[Any] = []
    rows = pa.array(first_rows)
    columns += [key.take(rows) for key in first.keys]
    for batch, row_numbers in components:
        own = [*batch.keys, *batch.payload] if own_keys else batch.payload
        if own:
            rows = pa.array(row_numbers)
            columns += [column.take(rows) for column in own]
    columns += [each if isinstance(each, pa.Array) else pa.array(each) for each in further]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
