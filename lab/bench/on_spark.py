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

from pyspark.sql import DataFrame, SparkSession

from lab import chain_contender, contender, multiway_spark, semistream_contender, semistream_spark, throughput
from lab.bench.one_session import ran
from lab.chain_contender import ChainTask
from lab.contender import Engine, Task
from lab.semistream_contender import EnrichTask
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
    plain = throughput.prepare(home / "plain", _BATCHES, rows=_ROWS)
    ended = throughput.prepare(home / "ended", _BATCHES, rows=_ROWS, punctuated=True)
    chain = multiway_spark.prepare(home / "chain", 3, 1, _CHAIN_BATCHES, _CHAIN_ROWS)
    streams = ZipfStreams(seed=semistream_spark.SEED, rows=_MASTER_ROWS, skew=1.0)
    semi = semistream_spark.prepare(home / "semi", streams, {"stream": _STREAM_BATCHES}, _STREAM_ROWS)
    limit = _MASTER_ROWS * streams.row_bytes // 10

    def two(engine: Engine, data: throughput.Data, *, punctuated: bool = False) -> float:
        task = Task(engine, str(data.folder), punctuated=punctuated)
        frame = contender.checked(contender.joined(task, *contender.frames(spark, task)), task)
        return ran(frame, data.answer, engine).rate(_BATCHES // 2)

    def three(engine: Engine) -> float:
        task = ChainTask(engine, str(chain.folder))
        streams = chain_contender.frames(spark, task)
        frame = chain_contender.checked(task, chain_contender.joined(task, streams))
        return ran(frame, chain.answer, engine).rate(_CHAIN_BATCHES // 2)

    def enriched(engine: semistream_contender.EnrichEngine) -> float:
        task = EnrichTask(engine, str(semi.folder), _STREAM_ROWS, limit, cycle_batches=4)
        with tempfile.TemporaryDirectory(dir=home, ignore_cleanup_errors=True) as folder:
            checkpoint = str(Path(folder) / "checkpoint")
            frame = _observed(semistream_contender.joined(spark, task, checkpoint))
            return ran(frame, semi.answers["stream"], engine, checkpoint).rate(_STREAM_BATCHES // 2)

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
        "Spark's static join": lambda: enriched("spark"),
    }
    return pairs, references


def _observed(frame: DataFrame) -> DataFrame:
    return semistream_contender.observed(frame, _STREAM_ROWS)
