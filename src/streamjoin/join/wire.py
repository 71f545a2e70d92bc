"""Wire format: arrivals on their way to a hash bucket; split by bucket, as bytes, and put together again.

A bucket is a slice of the hash space: bucket = floor((h + 2^63) * buckets / 2^64). So rows sorted
by hash are sorted by bucket too, and splitting is cutting. Punctuations of single keys travel with
their bucket, also those that wait for a time; patterns, event time and tracks go to every bucket,
so that each knows all of its input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, Layout, concat
from streamjoin.join.arrivals import Arrivals, Positions, ShareSummary
from streamjoin.join.statistics.monitor import Order
from streamjoin.punctuation import Punctuation
from streamjoin.state.codec import batch_bytes, decode, decode_batch, encode

_ARRIVALS = b"SJAR"


def bucket_bounds(buckets: int) -> Ints:
    """The smallest hash of every bucket but the first, ascending."""
    firsts = [-(-(i << 64) // buckets) - (1 << 63) for i in range(1, buckets)]
    return np.array(firsts, np.int64)


def split(arrivals: Arrivals, buckets: int, *, limit_bytes: int) -> Iterator[tuple[int, Arrivals]]:
    """One share or more for every bucket, rows sorted by hash; patterns, time and tracks go to all."""
    row_order, key_order = arrivals.rows.sort_order(), arrivals.keys.sort_order()
    rows, keys = arrivals.rows.take(row_order), arrivals.keys.take(key_order)
    rows_at = None if arrivals.rows_at is None else arrivals.rows_at.take(row_order)
    keys_at = None if arrivals.keys_at is None else arrivals.keys_at.take(key_order)
    scheduled = None if arrivals.scheduled is None else arrivals.scheduled.sorted()
    row_cut, key_cut = _cuts(rows, buckets), _cuts(keys, buckets)
    later_cut = None if scheduled is None else _cuts(scheduled, buckets)
    rank = None if arrivals.rank is None else arrivals.rank[row_order]
    behind = None if arrivals.behind is None else arrivals.behind[row_order]
    for bucket in range(buckets):
        first, last = key_cut[bucket], key_cut[bucket + 1]
        start, stop = row_cut[bucket], row_cut[bucket + 1]
        share = replace(
            arrivals,
            rows=rows.slice(start, stop - start),
            rows_at=None if rows_at is None else rows_at.slice(start, stop),
            rank=None if rank is None else rank[start:stop],
            behind=None if behind is None else behind[start:stop],
            keys=keys.slice(first, last - first),
            keys_at=None if keys_at is None else keys_at.slice(first, last),
            null_keys=arrivals.null_keys if bucket == 0 else 0,
            unkeyed=arrivals.unkeyed if bucket == 0 else None,
            null_punctuations=arrivals.null_punctuations if bucket == 0 else None,
            control_rows_with_data=arrivals.control_rows_with_data if bucket == 0 else 0,
            order=arrivals.order if bucket == 0 else None,
        )
        if scheduled is not None and later_cut is not None:
            first, last = later_cut[bucket], later_cut[bucket + 1]
            share = replace(share, scheduled=scheduled.slice(first, last - first))
        for piece in _pieces(share, limit_bytes):
            yield bucket, piece


def _cuts(batch: Batch, buckets: int) -> list[int]:
    """Where each bucket's rows begin in a sorted batch, and where the last one's end."""
    return [0, *np.searchsorted(batch.hash, bucket_bounds(buckets)).tolist(), len(batch)]


def _pieces(share: Arrivals, limit_bytes: int) -> Iterator[Arrivals]:
    """The share in pieces of at most about `limit_bytes`; punctuations and tracks go with the first."""
    pieces = max(1, -(-share.rows.nbytes // limit_bytes))
    step = max(1, -(-len(share.rows) // pieces))
    bare = Arrivals.nothing(share.rows.layout)
    for i, start in enumerate(range(0, max(len(share.rows), 1), step)):
        stop = min(start + step, len(share.rows))
        rows_at = None if share.rows_at is None else share.rows_at.slice(start, stop)
        rows = share.rows.slice(start, stop - start)
        rank = None if share.rank is None else share.rank[start:stop]
        behind = None if share.behind is None else share.behind[start:stop]
        whole = share if i == 0 else bare
        yield replace(whole, rows=rows, rows_at=rows_at, rank=rank, behind=behind)


def to_bytes(arrivals: Arrivals) -> bytes:
    """One share as bytes."""
    parts: list[Any] = []

    def put(part: Any) -> int | None:
        if part is None:
            return None
        parts.append(part)
        return len(parts) - 1

    def put_batch(batch: Batch) -> int | None:
        return put(batch_bytes(batch.data)) if len(batch) else None

    def put_positions(at: Positions | None) -> int | None:
        return put(None if at is None else np.concatenate([at.partition, at.offset]).tobytes())

    def put_values(tracks: Sequence[ShareSummary]) -> int | None:
        if not tracks or tracks[0].values is None:
            return None
        values = pa.concat_arrays([track.values for track in tracks])
        return put(batch_bytes(pa.RecordBatch.from_arrays([values], ["k"])))

    nameless = arrivals.null_punctuations
    header = {
        "rows": put_batch(arrivals.rows),
        "keys": put_batch(arrivals.keys),
        "unkeyed": None if arrivals.unkeyed is None else put_batch(arrivals.unkeyed),
        "null_punctuations": None if nameless is None else put_batch(nameless),
        "rows_at": put_positions(arrivals.rows_at),
        "keys_at": put_positions(arrivals.keys_at),
        "patterns_at": put_positions(arrivals.patterns_at),
        "rank": put(None if arrivals.rank is None else arrivals.rank.tobytes()),
        "behind": put(None if arrivals.behind is None else arrivals.behind.tobytes()),
        "tracks": [_track_to_json(track) for track in arrivals.summaries],
        "track_values": put_values(arrivals.summaries),
        "patterns": [Punctuation(patterns).text() for patterns in arrivals.patterns],
        "latest": arrivals.latest_us,
        "own_watermarks": arrivals.watermark_us,
        "null_keys": arrivals.null_keys,
        "control_rows_with_data": arrivals.control_rows_with_data,
        "order": None if arrivals.order is None else astuple(arrivals.order),
        "forwarded": put(None if arrivals.forwarded is None else batch_bytes(arrivals.forwarded)),
        "scheduled": None if arrivals.scheduled is None else put_batch(arrivals.scheduled),
        "scheduled_patterns": [
            [time_us, Punctuation(patterns).text()] for time_us, patterns in arrivals.scheduled_patterns
        ],
    }
    return encode(_ARRIVALS, header, parts, checksum=False)


def from_bytes(value: Any, layout: Layout) -> Arrivals:
    """The share that `to_bytes` wrote; its columns are views into `value`."""
    header, parts = decode(_ARRIVALS, value)

    def batch(name: str, of: Layout) -> Batch:
        part = header[name]
        return of.empty() if part is None else Batch(of, decode_batch(parts[part]))

    def positions(name: str) -> Positions | None:
        if header[name] is None:
            return None
        both = np.frombuffer(parts[header[name]], np.int64)
        return Positions(both[: len(both) // 2], both[len(both) // 2 :])

    def array(name: str, dtype: Any) -> Any:
        return None if header[name] is None else np.frombuffer(parts[header[name]], dtype)

    def tracks() -> tuple[ShareSummary, ...]:
        part, at, found = header["track_values"], 0, []
        values = None if part is None else decode_batch(parts[part]).column(0)
        for *numbers, told in header["tracks"]:
            track = ShareSummary(*numbers)
            found.append(track if values is None else replace(track, values=values.slice(at, told)))
            at += told
        return tuple(found)

    return Arrivals(
        batch("rows", layout),
        batch("keys", layout.keys_only),
        tuple(Punctuation.parse(text, layout.key_types).patterns for text in header["patterns"]),
        latest_us=header["latest"],
        watermark_us=header["own_watermarks"],
        null_keys=header["null_keys"],
        order=None if header["order"] is None else Order(*header["order"]),
        unkeyed=None if header["unkeyed"] is None else batch("unkeyed", layout),
        null_punctuations=None if header["null_punctuations"] is None else batch("null_punctuations", layout),
        control_rows_with_data=header["control_rows_with_data"],
        rows_at=positions("rows_at"),
        keys_at=positions("keys_at"),
        patterns_at=positions("patterns_at"),
        scheduled=None if header["scheduled"] is None else batch("scheduled", layout.keys_with_time),
        scheduled_patterns=tuple(
            (time_us, Punctuation.parse(text, layout.key_types).patterns)
            for time_us, text in header["scheduled_patterns"]
        ),
        rank=array("rank", np.int64),
        behind=array("behind", np.bool_),
        summaries=tracks(),
        forwarded=None if header["forwarded"] is None else decode_batch(parts[header["forwarded"]]),
    )


def _track_to_json(track: ShareSummary) -> list[int]:
    told = 0 if track.values is None else len(track.values)
    return [track.partition, track.first, track.last, track.size, track.widest, told]


def together(layout: Layout, shares: Sequence[Arrivals]) -> Arrivals:
    """All shares of one input and batch as one, rows sorted unless their order is known."""
    rows_at = _joined_positions([share.rows_at for share in shares])
    rows = concat(layout, [share.rows for share in shares])
    scheduled = [share.scheduled for share in shares if share.scheduled is not None]
    nameless = [share.null_punctuations for share in shares if share.null_punctuations is not None]
    forwarded = [share.forwarded for share in shares if share.forwarded is not None]
    return Arrivals(
        rows if rows_at is not None else rows.sorted(in_runs=True),
        concat(layout.keys_only, [share.keys for share in shares]),
        tuple(patterns for share in shares for patterns in share.patterns),
        latest_us=max((share.latest_us for share in shares if share.latest_us is not None), default=None),
        watermark_us=max((s.watermark_us for s in shares if s.watermark_us is not None), default=None),
        null_keys=sum(share.null_keys for share in shares),
        order=reduce(Order.and_then, [share.order for share in shares if share.order], Order()),
        unkeyed=concat(layout, [share.unkeyed for share in shares if share.unkeyed is not None]),
        null_punctuations=concat(layout, nameless) if nameless else None,
        control_rows_with_data=sum(share.control_rows_with_data for share in shares),
        rows_at=rows_at,
        keys_at=_joined_positions([share.keys_at for share in shares]),
        patterns_at=_joined_positions([share.patterns_at for share in shares]),
        scheduled=concat(layout.keys_with_time, scheduled) if scheduled else None,
        scheduled_patterns=tuple(timed for share in shares for timed in share.scheduled_patterns),
        rank=_joined([share.rank for share in shares]),
        behind=_joined([share.behind for share in shares]),
        summaries=tuple(one for share in shares for one in share.summaries),
        forwarded=pa.concat_batches(forwarded) if forwarded else None,
    )


def _joined(arrays: Sequence[Any]) -> Any:
    known = [array for array in arrays if array is not None]
    return np.concatenate(known) if known else None


def _joined_positions(positions: Sequence[Positions | None]) -> Positions | None:
    known = [at for at in positions if at is not None]
    if not known:
        return None
    partition = np.concatenate([at.partition for at in known])
    return Positions(partition, np.concatenate([at.offset for at in known]))
