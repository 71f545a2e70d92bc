"""What a turn of a semi-stream join costs on this machine: the real operator over a small table, timed.

60,000 rows of 120 bytes are staged in a temporary folder, in few and in more segments, and joined with tuples
of Zipf 0 and 1; `enrich.cost` fits its model to the turns. That takes a few seconds, once in a process for
each form of the join. On a busy machine the costs are those of a busy machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from streamjoin.columnar.batch import Batch
from streamjoin.declare.stream import Stream
from streamjoin.declare.table import Table
from streamjoin.demo.generators.zipf import ZipfStreams
from streamjoin.enrich.cost import LoopCosts, calibrate
from streamjoin.enrich.segments import VersionStore
from streamjoin.enrich.spec import StagedRows
from streamjoin.enrich.staging import Staging, stage
from streamjoin.enrich.tables.files import table_source
from streamjoin.join.intake import Intake
from streamjoin.plan.enrich.planner import EnrichOptions, EnrichPlan, plan_enrich

_ROWS = 60_000
_MEMORY = 1 << 30
_SEGMENTS = (3, 9)
_W = (1_500, 12_000)


@cache
def loop_costs(operator: str | None) -> LoopCosts:
    """The costs of a preset, or of the usual form."""
    zipf = [ZipfStreams(seed=3, rows=_ROWS, skew=skew) for skew in (0.0, 1.0)]
    stream = Stream("stream", zipf[0].stream_schema, ("k",))
    table = Table("table", zipf[0].table_schema, ("k",), _MEMORY)
    plan = plan_enrich(stream, [table], EnrichOptions(operator=operator))
    with tempfile.TemporaryDirectory(prefix="streamjoin-calibration-") as folder:
        tables = [_staged(plan, zipf[0], Path(folder), segments) for segments in _SEGMENTS]
        return calibrate(plan.spec, tables, [_drawn(plan, each) for each in zipf], _W)


def _staged(plan: EnrichPlan, zipf: ZipfStreams, folder: Path, segments: int) -> StagedRows:
    table = zipf.table_rows(0, _ROWS)
    store = VersionStore(folder / str(segments), plan.table.name)
    how = Staging(segment_bytes=table.nbytes // segments + 1)
    return stage(table_source(table), plan.form(1, "local"), store, "1", how).bucket(0)


def _drawn(plan: EnrichPlan, zipf: ZipfStreams) -> Callable[[int], Batch]:
    """New tuples at each call."""
    intake, taken = Intake(plan.stream, plan.spec.stream, monitored=False), 0

    def draw(count: int) -> Batch:
        nonlocal taken
        taken += count
        return intake.arrivals(zipf.tuples(taken - count, count)).rows

    return draw
