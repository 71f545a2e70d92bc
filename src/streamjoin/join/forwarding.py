"""What an operator passes on to the one that joins its results, beside rows, finished keys and ranges: the
promises about a later key that have come so far, and how far event time has got.

A later result has a new component, whose time is at least the progress of its input. So no later result has
a time before the smallest progress of the inputs that have not ended. Worked number: a has reached 30 and b
21: a result that comes now has a time of 21 or more.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from streamjoin.join.eviction import Eviction
from streamjoin.join.outputs import Forwarded, Output, OutputWatermark
from streamjoin.join.watermarks import NO_WATERMARK


def forward(join: Eviction) -> Iterator[Output]:
    """At the end of a batch; nothing while results of any value and time may still follow."""
    if join.deferred is not None and join.deferred.owed.any():
        return
    for i, forwarded in enumerate(join.forwarded):
        counters = join.counters[i]
        told = forwarded.take(join.sides[i], counters.purged + counters.invalidated + counters.expired)
        if told is not None:
            payload = join.spec.payload_names(i)
            names = [*join.spec.key_names, *(payload[n] for n in join.spec.inputs[i].forwarded)]
            yield Forwarded(pa.RecordBatch.from_arrays(told, names))
    watermarks = output_watermark(join)
    if join.spec.stamps and watermarks > NO_WATERMARK:
        yield OutputWatermark(watermarks)


def output_watermark(join: Eviction) -> int:
    """The time before which no later result will be."""
    open_ = [at for at, ended in zip(join.watermarks, join.own_watermarks.ended, strict=True) if not ended]
    return min(open_, default=NO_WATERMARK)
