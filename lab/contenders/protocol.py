"""What every engine is given, what it gives back, and how it is run: one protocol for all contenders.

A work is a folder of CSV files and the answer of the batch join over them:

    <folder>/<input>/00000.csv, 00001.csv …   a file a micro-batch: no header, no quotes, empty = null
    <folder>/<input>.csv                      the same bytes in one file, for engines that read it in order

Times are BIGINT milliseconds since 1970. An answer is a count and two sums over integer columns (a text
counts by its length) that every engine's SQL can compute. Worked number: the rows (k 5, a 2, b 3) and (k 6,
a 1, b 1) with `Check(("a", "b"), "k")` have the sum 7 and the mix (31·2 + 17·3)·5 + (31·1 + 17·1)·6 = 853.

A contender is a process of its own. Its last line on stdout is a `Measured` as JSON. One that cannot start,
crashes, takes too long or answers wrongly gives a `Failed` that says so: it is named, and never slower.

Assumption: numbers in a check are not null and not negative (engines differ in the sign of a remainder).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from streamjoin.errors import InvariantBroken

WEIGHTS = (31, 17, 13, 11, 7, 5, 3, 2, 19, 23, 29, 37)
END = "is_end"  # the column that marks a punctuation
_STDERR_LINES = 12
_PLAIN = csv.WriteOptions(include_header=False, quoting_style="none")


@dataclass(frozen=True)
class Answer:
    """Count, plain sum and order-independent checksum of a result."""

    rows: int
    sum: int
    mix: int

    def __add__(self, other: Answer) -> Answer:
        return Answer(self.rows + other.rows, self.sum + other.sum, self.mix + other.mix)


@dataclass(frozen=True)
class Check:
    """The columns an answer is made of: at most twelve, best all of a result (an engine may drop others)."""

    values: Sequence[str]  # integers
    key: str  # an integer too
    texts: Sequence[str] = ()  # count by their length in characters

    def answer(self, rows: pa.Table) -> Answer:
        """Of rows in memory."""
        numbers = [np.asarray(rows[name], np.int64) for name in self.values]
        numbers += [np.asarray(pc.utf8_length(rows[name]), np.int64) for name in self.texts]
        plain = sum(numbers, np.zeros(len(rows), np.int64))
        weighted = sum((w * n for w, n in zip(WEIGHTS, numbers, strict=False)), np.zeros(len(rows), np.int64))
        mixed = (weighted % 1_000_003) * (np.asarray(rows[self.key], np.int64) % 1_009)
        return Answer(len(rows), int(plain.sum()), int(mixed.sum()))

    def sql(self) -> tuple[str, str]:
        """The plain and the mixed number of one row, as expressions that Spark and Flink both read."""
        numbers = [f"`{name}`" for name in self.values]
        numbers += [f"CAST(CHAR_LENGTH(`{name}`) AS BIGINT)" for name in self.texts]
        weighted = " + ".join(f"{w} * {number}" for w, number in zip(WEIGHTS, numbers, strict=False))
        # Flink's MOD has the type of its second argument
        mixed = f"CAST(MOD({weighted}, 1000003) AS BIGINT) * CAST(MOD(`{self.key}`, 1009) AS BIGINT)"
        return " + ".join(numbers), mixed


@dataclass(frozen=True)
class Work:
    """The same for every engine."""

    name: str
    says: str
    folder: Path
    inputs: Mapping[str, Mapping[str, str]]  # input → column → BIGINT, STRING or BOOLEAN, in file order
    rows: int  # over all inputs, without punctuations
    answer: Answer  # of the batch join, never of a contender


@dataclass(frozen=True)
class Measured:
    """What a contender saw of itself."""

    engine: str
    detail: str  # version, state backend and format, parallelism, what is declared
    startup_s: float  # until the engine could begin to read
    wall_s: float  # of the job, without start-up
    cpu_s: float  # of the whole process tree
    answer: Answer
    first_result_s: float | None  # since the job began
    state: Sequence[tuple[float, int | None, int | None]]  # seconds since the job began, rows, bytes
    extra: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def read(line: str) -> Measured:
        """From the JSON line a contender printed."""
        found = json.loads(line)
        found["answer"] = Answer(**found["answer"])
        found["state"] = [(float(at), rows, size) for at, rows, size in found["state"]]
        return Measured(**found)


@dataclass(frozen=True)
class Failed:
    """A contender without a number, and why."""

    engine: str
    why: str


def milliseconds(rows: pa.Table) -> pa.Table:
    """The same rows with times as milliseconds since 1970."""
    for i, column in enumerate(rows.schema):
        if pa.types.is_timestamp(column.type):
            unzoned = rows[i].cast(pa.timestamp(column.type.unit))
            whole = pc.cast(unzoned, pa.timestamp("ms"), safe=False).cast(pa.int64())
            rows = rows.set_column(i, column.name, whole)
    return rows


def sql_type(column: pa.Field) -> str:
    """The SQL name of a column's type."""
    if pa.types.is_boolean(column.type):
        return "BOOLEAN"
    if pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type):
        return "BIGINT"
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return "STRING"
    raise InvariantBroken(f"column {column.name!r} is {column.type}: a work has integers, texts and booleans")


_OLDEST = 1_700_000_000


def write_input(folder: Path, name: str, batches: Iterable[pa.Table]) -> tuple[dict[str, str], int]:
    """Write one input, a file per batch and all in one; its columns and its number of data rows."""
    (folder / name).mkdir(parents=True)
    columns: dict[str, str] = {}
    rows = 0
    with (folder / f"{name}.csv").open("wb") as whole:
        for i, batch in enumerate(batches):
            columns = {column.name: sql_type(column) for column in batch.schema}
            rows += len(batch) - (pc.sum(batch[END]).as_py() or 0 if END in columns else 0)
            path = folder / name / f"{i:05}.csv"
            # in one chunk: for an empty one, write_csv writes a buffer of zeros
            csv.write_csv(milliseconds(batch).combine_chunks(), path, _PLAIN)
            os.utime(path, (_OLDEST + i, _OLDEST + i))  # Spark takes files in the order of their time
            whole.write(path.read_bytes())
    return columns, rows


def run_contender(command: Sequence[str], engine: str, work: Work, timeout_s: float) -> Measured | Failed:
    """Run one contender in a process of its own; its answer is compared before anything is returned."""
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    except OSError as error:
        return Failed(engine, f"cannot be started: {error.strerror}")
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return Failed(engine, f"took longer than {timeout_s:g} s on {work.name}: stopped")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it started is in its group
    if process.returncode != 0:
        last = "\n".join(err.strip().splitlines()[-_STDERR_LINES:])
        return Failed(engine, f"ended with {process.returncode} on {work.name}: {last}")
    try:
        found = Measured.read(out.strip().splitlines()[-1])
    except (IndexError, ValueError, TypeError, KeyError):
        return Failed(engine, f"printed no measurement as its last line on {work.name}: {out[-200:]!r}")
    if found.answer != work.answer:
        return Failed(engine, f"wrong answer on {work.name}: {found.answer}, the batch join {work.answer}")
    return found
