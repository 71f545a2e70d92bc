"""Resuming: a join that goes on from a checkpoint, or is refused before its query starts.

The number of buckets is fixed when a query first starts; a restart that leaves it open gets that number,
whatever the session's partitions are now. Everything else is compared with what the state was written with
(`join.persistence.restart`), of a chain or a tree of joins each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from streamjoin.declare.stream import Stream
from streamjoin.join.persistence.restart import check_restart
from streamjoin.plan.enrich.planner import EnrichPlan
from streamjoin.plan.planner import Plan
from streamjoin.spark.chain import forward
from streamjoin.spark.checkpoint.in_place import refuse_unfinished
from streamjoin.spark.checkpoint.reader import Checkpoint, stored_identities
from streamjoin.spark.checkpoint.starts import Identity, Starts
from streamjoin.spark.files import Files
from streamjoin.spark.frame import SparkJoin
from streamjoin.spark.session import default_buckets, is_connect
from streamjoin.spark.staging import HASH


def resumed(join: SparkJoin, checkpoint: str) -> SparkJoin:
    """The join as it goes on from a checkpoint, or as it begins there."""
    plan = join.plan
    if not plan.streams[0].source.isStreaming or is_connect(join.spark):
        return join  # over Connect the files of a checkpoint are the server's
    names = [one.options.name for one in _tree(plan)]
    starts, before = _before(join.spark, checkpoint, names)
    buckets = {name: identity["buckets"] for name, identity in before.items() if identity is not None}
    again = _with_buckets(plan, buckets)
    now = {}
    for below in _tree(again):
        spec = join.spec if below is plan else SparkJoin.of(below, warn=False).spec
        now[below.options.name] = spec.identity()
    _check(starts, before, now)
    return join if again is plan else SparkJoin.of(again, warn=False)


def resumed_enrich(plan: EnrichPlan, checkpoint: str) -> EnrichPlan:
    """An enrichment as it goes on from a checkpoint, or as it begins there; nothing is staged yet."""
    source = plan.chain[0].stream.source
    if source is None or not source.isStreaming or urlparse(checkpoint).scheme not in ("", "file"):
        return plan  # refused later, or a batch
    if is_connect(source):
        return plan
    spark = source.sparkSession
    starts, before = _before(spark, checkpoint, [one.name for one in plan.chain])
    below, now = None, {}
    for one in plan.chain:
        identity = before[one.name]
        fixed = default_buckets(spark) if identity is None else identity["buckets"]
        options = replace(one.options, buckets=one.options.buckets or fixed)
        below = replace(one, options=options, below=below)
        spec = replace(one.spec, name=one.name, buckets=options.buckets, hash=HASH)
        now[one.name] = spec.identity()
    _check(starts, before, now)
    return plan if below is None else below


def _before(
    spark: SparkSession, checkpoint: str, names: list[str]
) -> tuple[Starts, dict[str, Identity | None]]:
    """What the state of each join was written with; from the start record, or from the state."""
    starts = Starts(Files(spark), checkpoint)
    refuse_unfinished(starts.files, checkpoint)
    known = starts.stored(names)
    if known is None:
        stored = stored_identities(Checkpoint.at(spark, checkpoint))
        if not set(names) <= stored.keys() and len(names) == len(stored):
            stored = dict(zip(names, stored.values(), strict=True))
        known = {name: stored.get(name) for name in names}
    return starts, known


def _check(starts: Starts, before: Mapping[str, Identity | None], now: Mapping[str, Any]) -> None:
    for name, identity in now.items():
        stored = before[name]
        if stored is not None:
            check_restart(stored, identity)
    starts.note(before, now)


def _tree(plan: Plan) -> Iterator[Plan]:
    """A join and those below it, the lower ones first."""
    for stream in plan.streams:
        if stream.upstream is not None:
            yield from _tree(stream.upstream.plan)
    yield plan


def _with_buckets(plan: Plan, buckets: Mapping[str, int]) -> Plan:
    """The same joins, each with its number of buckets where it is not declared."""
    streams = tuple(_fed_anew(stream, buckets) for stream in plan.streams)
    inputs = tuple(
        one if stream.upstream is None else replace(one, partitions=stream.upstream.buckets)
        for one, stream in zip(plan.spec.inputs, streams, strict=True)
    )
    wanted = plan.options.buckets or buckets.get(plan.options.name)
    same = all(one is other for one, other in zip(streams, plan.streams, strict=True))
    if same and wanted == plan.options.buckets:
        return plan
    options = replace(plan.options, buckets=wanted)
    return replace(plan, streams=streams, options=options, spec=replace(plan.spec, inputs=inputs))


def _fed_anew(stream: Stream, buckets: Mapping[str, int]) -> Stream:
    """A stream of another join's results, from that join with its number of buckets."""
    if stream.upstream is None:
        return stream
    below = _with_buckets(stream.upstream.plan, buckets)
    wired = SparkJoin.of(below, warn=False)
    if below is stream.upstream.plan and wired.spec.buckets == stream.upstream.buckets:
        return stream
    upstream = replace(stream.upstream, plan=below, buckets=wired.spec.buckets)
    return replace(stream, upstream=upstream, source=forward(wired, keys=upstream.key_positions is not None))
