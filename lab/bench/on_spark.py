"""The short form on Spark: four joins by this library, each beside Spark's own, in one session.

- two-way: 1-to-10 on a long key, nothing declared; punctuated: the same with a unique key and punctuations;
  both beside Spark's stream-stream join, which has no use for the declarations.
- three-way: one row a key, beside Spark's chain of two joins.
- enriched: a Zipf stream and a million master rows, memory a tenth of them; beside its stream-static join.

A ratio is rows/s of ours by Spark's, over the last half of the batches, in one round; contenders take turns,
the order changes with the round, and a first round that is not counted warms the JVM. The reference keeps its
state in RocksDB, as ours does. About two and a half minutes on 2 quiet cores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from lab.contenders.one_session import run_query
from lab.contenders.protocol import Work
from lab.contenders.spark_contender import Engine, SparkQuery, observed
from lab.spark_joins import chain, enrichment, two_streams
from lab.spark_joins.chain import Chain
from lab.spark_joins.enrichment import Enrichment
from lab.spark_joins.two_streams import TwoStreams
from streamjoin.demo.generators.zipf import ZipfStreams
from streamjoin.spark.session import session

ROUNDS = 3
_ROWS, _BATCHES = 165_000, 4
_CHAIN_ROWS, _CHAIN_BATCHES = 90_000, 4
_MASTER_ROWS, _STREAM_ROWS, _STREAM_BATCHES = 1_000_000, 20_000, 8
_REFERENCE: Engine = "spark-rocksdb"


@dataclass(frozen=True)
class Pair:
    """One join by this library, and what it is measured against; both give rows/s of one run."""

    name: str
    says: str
    ours: Callable[[], float]
    reference: str  # the name of one of the references


def measure(step: Callable[[str], None]) -> dict[str, tuple[str, list[float]]]:
    """By name: what was measured, and its ratio in each round."""
    with tempfile.TemporaryDirectory(prefix="streamjoin-bench-") as folder:
        step("writing the files")
        spark = session(cores=2, memory="6g", log=Path("out/spark.log"))  # its messages would drown ours
        try:
            pairs, references = _contenders(spark, Path(folder))
            return _rounds(pairs, references, step)
        finally:
            spark.stop()


def _rounds(
    pairs: list[Pair], references: dict[str, Callable[[], float]], step: Callable[[str], None]
) -> dict[str, tuple[str, list[float]]]:
    work = {**references, **{pair.name: pair.ours for pair in pairs}}
    found: dict[str, tuple[str, list[float]]] = {pair.name: (pair.says, []) for pair in pairs}
    for number in range(ROUNDS + 1):
        rates = {}
        for name in sorted(work)[:: 1 if number % 2 else -1]:
            step(f"{f'round {number} of {ROUNDS}' if number else 'warming'}: {name}")
            rates[name] = work[name]()
        for pair in pairs if number else []:
            found[pair.name][1].append(rates[pair.name] / rates[pair.reference])
    return found


def _contenders(spark: SparkSession, home: Path) -> tuple[list[Pair], dict[str, Callable[[], float]]]:
    """All work, over files that are written here."""
    plain = two_streams.prepare(home / "plain", _BATCHES, rows=_ROWS)
    ended = two_streams.prepare(home / "ended", _BATCHES, rows=_ROWS, punctuated=True)
    three_streams = chain.prepare(home / "chain", 3, 1, _CHAIN_BATCHES, _CHAIN_ROWS)
    streams = ZipfStreams(seed=enrichment.SEED, rows=_MASTER_ROWS, skew=1.0)
    batches = {"stream": _STREAM_BATCHES}
    tuples = enrichment.prepare(home / "enriched", streams, batches, _STREAM_ROWS)["stream"]
    limit = _MASTER_ROWS * streams.row_bytes // 10

    def rate(query: SparkQuery, work: Work, counted: int) -> float:
        with tempfile.TemporaryDirectory(dir=home, ignore_cleanup_errors=True) as folder:
            checkpoint = str(Path(folder) / "checkpoint")
            frame = observed(query.rows(spark, checkpoint), query)
            return run_query(frame, work.answer, query.engine, checkpoint).rate(counted)

    def two(engine: Engine, work: Work, *, punctuated: bool = False) -> float:
        return rate(TwoStreams(engine, str(work.folder), punctuated=punctuated), work, _BATCHES // 2)

    def three(engine: Engine) -> float:
        return rate(Chain(engine, str(three_streams.folder)), three_streams, _CHAIN_BATCHES // 2)

    def enriched(engine: Engine) -> float:
        query = Enrichment(engine, str(tuples.folder), _STREAM_ROWS, limit, cycle_batches=4)
        return rate(query, tuples, _STREAM_BATCHES // 2)

    pairs = [
        Pair("two-way", "1-to-10 join of two streams", lambda: two("streamjoin", plain), "Spark's join"),
        Pair(
            "punctuated",
            "the same with a unique key and punctuations",
            lambda: two("streamjoin", ended, punctuated=True),
            "Spark's join",
        ),
        Pair("three-way", "join of three streams", lambda: three("streamjoin"), "Spark's chain"),
        Pair("enriched", "a stream with master data", lambda: enriched("streamjoin"), "Spark's static join"),
    ]
    references = {
        "Spark's join": lambda: two(_REFERENCE, plain),
        "Spark's chain": lambda: three(_REFERENCE),
        "Spark's static join": lambda: enriched(_REFERENCE),
    }
    return pairs, references
