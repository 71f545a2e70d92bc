"""The paper on semi-stream joins (SSBJ), replayed: figures 4 to 6 on this library's local operator.

Each point of a picture is a setting (`ssbj_runs`) that MESHJOIN, SSBJ as in the paper and this library's form
run in one process, two settings at a time; answers are compared with a batch join. The paper's statements
about SSBJ are tested on this library's form, which keeps the master data in order; the paper's form has
claims of its own. Settings are kept, so figures share them. Cost: in full about 10 minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin.lab.parts import Part
from streamjoin.lab.ssbj_model import computed, memory_by_rate
from streamjoin.lab.ssbj_rates import by_memory, by_size, by_skew, other_data
from streamjoin.lab.ssbj_sensitivity import piece_size, switching


def parts() -> Sequence[Part]:
    """What the papers' run does of this paper."""
    return [
        Part("ssbj-5a-5f", "semi-stream join: memories", (45, 140), by_memory),
        Part("ssbj-5b", "semi-stream join: sizes of the master data", (5, 35), by_size),
        Part("ssbj-5c", "semi-stream join: skews", (15, 80), by_skew),
        Part("ssbj-5d-5e", "semi-stream join: TPC-H and weather", (25, 90), other_data),
        Part("ssbj-4a", "semi-stream join: memory for a rate", (10, 15), memory_by_rate),
        Part("ssbj-6a", "semi-stream join: switching factors", (15, 90), switching),
        Part("ssbj-6b", "semi-stream join: disk buffers", (25, 60), piece_size),
        Part("ssbj-4b-6c-6d", "semi-stream join: the cost model", (1, 100), computed),
    ]
