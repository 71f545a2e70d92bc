"""What a turn of a semi-stream join costs on this machine: the real operator over a small table, timed.

60,000 rows of 120 bytes are staged in a temporary folder, in few and in more segments, and joined with tuples
of Zipf 0 and 1; `enrich.cost` fits its model to the turns. Keys of rows are drawn at random with repetition,
as in the SSBJ paper, so that 1/e of the values have no row. That takes a few seconds, once in a process for
each preset. On a busy machine the costs are those of a busy machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch
from streamjoin.declare.stream import Stream
from streamjoin.declare.table import Table
from streamjoin.enrich.cost import LoopCosts, calibrate
from streamjoin.enrich.segments import VersionStore
from streamjoin.enrich.spec import StagedRows
from streamjoin.enrich.staging import StagingOptions, stage
from streamjoin.enrich.tables.files import table_source
from streamjoin.join.intake import Intake
from streamjoin.plan.enrich.planner import EnrichOptions, EnrichPlan, plan_enrich

_ROWS = 60_000
_MEMORY = 1 << 30
_SEGMENTS = (3, 9)
_W = (1_500, 12_000)
_SKEWS = (0.0, 1.0)
_SEED = 3
_TABLE = pa.schema({"k": pa.int64(), "m": pa.int64(), "pad": pa.binary()})
_STREAM = pa.schema({"k": pa.int64(), "id": pa.int64(), "x": pa.int32()})


@cache
def loop_costs(operator: str | None) -> LoopCosts:
    """The costs of a preset, or of the operator as the planner chooses it."""
    stream, table = Stream("stream", _STREAM, ("k",)), Table("table", _TABLE, ("k",), _MEMORY)
    plan = plan_enrich(stream, [table], EnrichOptions(operator=operator))
    rows = _rows(np.random.default_rng(_SEED))
    with tempfile.TemporaryDirectory(prefix="streamjoin-calibration-") as folder:
        tables = [_staged(plan, rows, Path(folder), segments) for segments in _SEGMENTS]
        return calibrate(plan.spec, tables, [_drawn(plan, skew) for skew in _SKEWS], _W)


def _rows(random: np.random.Generator) -> pa.Table:
    """The table: values from 1 to its number of rows, drawn with repetition."""
    keys, pad = random.integers(1, _ROWS + 1, _ROWS), random.bytes(104 * _ROWS)
    column = pa.array([pad[i : i + 104] for i in range(0, len(pad), 104)], pa.binary())
    return pa.Table.from_arrays([pa.array(keys), pa.array(np.arange(_ROWS)), column], schema=_TABLE)


def _staged(plan: EnrichPlan, rows: pa.Table, folder: Path, segments: int) -> StagedRows:
    store = VersionStore(folder / str(segments), plan.table.name)
    how = StagingOptions(segment_bytes=rows.nbytes // segments + 1)
    return stage(table_source(rows), plan.form(1, "local"), store, "1", how).bucket(0)


def _drawn(plan: EnrichPlan, skew: float) -> Callable[[int], Batch]:
    """New tuples at each call; the value of rank r comes with a probability proportional to r ^ -skew."""
    random, intake = np.random.default_rng(_SEED), Intake(plan.stream, plan.spec.stream, monitored=False)
    upto = np.cumsum(np.arange(1, _ROWS + 1) ** -skew)
    value = random.permutation(_ROWS) + 1  # of each rank

    def draw(count: int) -> Batch:
        keys = value[upto.searchsorted(random.random(count) * upto[-1], side="right")]
        numbers = pa.array(np.arange(count))
        tuples = pa.Table.from_arrays([pa.array(keys), numbers, numbers.cast(pa.int32())], schema=_STREAM)
        return intake.arrivals(tuples).rows

    return draw
