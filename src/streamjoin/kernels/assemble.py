"""Output columns of matched rows: the key once, then each component's other columns.

A component is a batch and one row number per result; all components have the same length.
Cost: one gather per output column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamjoin.batch import Batch, Ints

Component = tuple[Batch, Ints]


def assemble(components: Sequence[Component], schema: pa.Schema) -> pa.RecordBatch:
    """One record batch of results; keys are taken from the first component."""
    first, first_rows = components[0]
    columns: list[Any] = []
    rows = pa.array(first_rows)
    columns += [key.take(rows) for key in first.keys]
    for batch, row_numbers in components:
        if batch.payload:
            rows = pa.array(row_numbers)
            columns += [column.take(rows) for column in batch.payload]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
