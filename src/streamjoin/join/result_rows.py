"""Result rows: combinations of matched tuples as rows of the output, where the join's condition holds.

A combination is a row number per input; columns are gathered only for the combinations that pass.
"""

from __future__ import annotations

import pyarrow as pa

from streamjoin.columnar.assemble import Component, assemble
from streamjoin.columnar.window import latest_and_until
from streamjoin.join.spec import JoinSpec

_NO_COLUMNS = pa.RecordBatch.from_arrays([], [])


def passing(spec: JoinSpec, frame: list[Component]) -> tuple[list[Component], pa.RecordBatch]:
    """The combinations for which the join's condition holds, and their rows where those leave."""
    where = None if spec.where is None else spec.where.joined
    if where is None:
        return frame, _assembled(spec, frame) if spec.how.combinations else _NO_COLUMNS
    rows = assemble(frame, where.joined, own_keys=spec.own_keys)
    chosen = where.passing(rows)
    if len(chosen) == rows.num_rows:
        return frame, shown(spec, rows)
    return [(batch, numbers[chosen]) for batch, numbers in frame], shown(spec, rows.take(pa.array(chosen)))


def _assembled(spec: JoinSpec, frame: list[Component]) -> pa.RecordBatch:
    """Rows of the output, with their stamps where a join that follows goes by them."""
    if not spec.stamps:
        return shown(spec, assemble(frame, spec.output, own_keys=spec.own_keys))
    declared = [one.window_us for one in spec.inputs]
    times = [of.time[at] if of.layout.timed else None for of, at in frame]
    windows = [of.windows(at, window) for (of, at), window in zip(frame, declared, strict=True)]
    stamps = latest_and_until(times, windows, len(frame[0][1]))
    return assemble(frame, spec.output, stamps[: len(spec.stamps)])


def shown(spec: JoinSpec, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that leave."""
    return rows if spec.shown is None or spec.grouping is not None else rows.select(list(spec.shown))
