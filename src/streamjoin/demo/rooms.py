"""The building of the adaptive-driver paper: what was it like in a room, minute by minute?

Temperature, humidity and light come from three sinks of different rates and bursts and are joined by room
and minute, in one operator: no pair of two is ever stored. What bounds the state:

- Every sensor says of each minute when it has sent all of it (punctuations). A reading is purged when the two
  other sensors of its room have said so.
- A sensor that fell silent says nothing. Readings of one minute are at most a minute apart, so a window of
  one minute takes no result away, and evicts readings that wait for such a sensor.

The same streams are joined once more by a join that evicts nothing; on Spark by Spark's own two joins, which
keep the pairs of temperature and humidity as state of the second. There a micro-batch is one file of each
stream, so both queries move through event time in step.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table

from streamjoin.api.join import Joined, join, stream
from streamjoin.declare.marked import marked
from streamjoin.demo.generators.rooms import DELAYS_US, MINUTE_US, VALUES, RoomStreams, room_schema
from streamjoin.demo.runner import (
    ObservedJoin,
    Tick,
    check_rows,
    collect,
    follow,
    read_files,
    start,
    text_table,
    write_files,
)
from streamjoin.plan.bounds import UnboundedState
from streamjoin.plot import Chart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = ("room", "minute")
DECLARED = "ends of minutes and a window declared"


def rooms_join(**sources: Any) -> Joined:
    """The join with all that is known of a minute's end; sources by name, else for a run in this process."""
    return join(
        *(
            stream(
                sources.get(name, room_schema(name)),
                name=name,
                key=KEY,
                time="at",
                window="1 minute",
                lateness=timedelta(microseconds=DELAYS_US[name]),
                punctuation=marked("is_end"),
                columns=[value],
            )
            for name, value in VALUES.items()
        ),
        name="rooms",
    )


def undeclared_join() -> Joined:
    """The same join with nothing declared; the ends of minutes are left out of its input."""
    return join(
        *(stream(room_schema(name), name=name, key=KEY, columns=[value]) for name, value in VALUES.items()),
        name="rooms_plain",
    )


@dataclass
class RoomsDemo:
    """The demo over one building, in batches of `batch_minutes` of event time."""

    streams: RoomStreams
    batch_minutes: float
    name: str = "rooms"
    unit: str = "batches"
    folder: Path = field(default=Path(), init=False)

    def introduction(self) -> Iterator[str]:
        yield "[bold]What was it like in a room, minute by minute?[/] temperature ⋈ humidity ⋈ light"
        yield (
            "Three sinks get readings at different rates: temperature every minute, humidity every two, sent "
            "with a delay of up to three, and light in bursts. Each says when a room's minute is over; some "
            "humidity sensors fall silent for an hour, and then only the window of a minute evicts."
        )

    def prepare(self, folder: Path) -> None:
        self.folder = folder

    def explain(self) -> str:
        return rooms_join().explain()

    def steps(self) -> int:
        return len(self.streams.cuts_us(self.batch_minutes))

    def run_local(self, tick: Tick) -> tuple[ObservedJoin, ObservedJoin]:
        """Both joins side by side in this process."""
        declared, undeclared = ObservedJoin(DECLARED), ObservedJoin("the same join with nothing declared")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnboundedState)  # that its state grows is what is shown
            runs = ((declared, rooms_join().local()), (undeclared, undeclared_join().local()))
        for number, batch in enumerate(self.streams.batches(self.batch_minutes), start=1):
            for observed, run in runs:
                tables = batch if observed is declared else {name: readings(batch[name]) for name in batch}
                observed.results.append(run.step(tables))
                state = run.state()
                observed.state_rows.append(sum(state.rows.values()))
                observed.closed_keys.append(state.closed_keys)
            tick(number)
        declared.counted.update(runs[0][1].counters())
        return declared, undeclared

    def run_spark(self, spark: SparkSession, tick: Tick) -> tuple[ObservedJoin, ObservedJoin]:
        """Both queries, one after the other."""
        write_files(self.streams.batches(self.batch_minutes), self.folder)
        declared = self.run_ours(spark, lambda done: tick(done // 2))
        half = self.steps() // 2
        return declared, self.run_sparks_own(spark, lambda done: tick(half + done // 2))

    def run_ours(self, spark: SparkSession, tick: Tick) -> ObservedJoin:
        """This library's join over the files."""
        observed = ObservedJoin(DECLARED)
        query = rooms_join(**self._sources(spark)).write(
            rows=collect(observed), checkpoint=str(self.folder / "ours"), trigger={"availableNow": True}
        )
        follow(query, observed, tick, VALUES)
        return observed

    def run_sparks_own(self, spark: SparkSession, tick: Tick) -> ObservedJoin:
        """Spark's joins over the readings in the files, two by two."""
        observed = ObservedJoin("Spark's own two joins")
        first, *others = (
            source.where("not is_end").select(*KEY, VALUES[name])
            for name, source in self._sources(spark).items()
        )
        for other in others:
            first = first.join(other, list(KEY))
        follow(start(first, collect(observed), self.folder / "own"), observed, tick)
        return observed

    def _sources(self, spark: SparkSession) -> dict[str, DataFrame]:
        return {name: read_files(spark, room_schema(name), self.folder / name) for name in VALUES}

    def check(self, observed: tuple[ObservedJoin, ObservedJoin]) -> None:
        expected = batch_join(self.streams)
        for one in observed:
            check_rows(f"the join with {one.label}", one.rows, expected, expected.column_names)

    def report(self, observed: tuple[ObservedJoin, ObservedJoin]) -> Iterator[str | Table]:
        declared, other = observed
        yield _sample(declared.rows)
        total = sum(len(self.streams.table(name)) for name in VALUES)
        yield (
            f"{len(declared.rows):,} results from {total:,} rows of {self.streams.hours:g} hours, the same "
            f"as the batch join over all rows gives.\nTuples in state at the end: "
            f"{declared.state_rows[-1]:,} (at most {max(declared.state_rows):,}, and "
            f"{max(declared.closed_keys):,} minutes that were over for some of their sensors), by "
            f"{other.label} {other.state_rows[-1]:,}."
        )
        counted = declared.counted
        yield text_table(
            "What evicted the readings",
            {"": "left", **dict.fromkeys(VALUES, "right")},
            (
                (what, *(f"{counted[f'{name}_{counter}']:,}" for name in VALUES))
                for what, counter in (
                    ("readings", "rows"),
                    ("not stored: nothing to wait for", "not_stored"),
                    ("purged by ends of minutes", "purged"),
                    ("evicted by the window", "invalidated"),
                )
            ),
        )

    def picture(self, observed: tuple[ObservedJoin, ObservedJoin]) -> Chart:
        cuts = self.streams.cuts_us(self.batch_minutes).tolist()
        hours = [0.0, *(cut / (60 * MINUTE_US) for cut in cuts)]
        lines = {one.label: (hours, [0, *one.state_rows]) for one in observed}
        return Chart(
            "Tuples in the state of the join of temperature, humidity and light",
            "hours",
            "tuples in state",
            lines,
        )


def readings(rows: pa.Table) -> pa.Table:
    """A stream without the ends of its minutes."""
    return rows.filter(pc.invert(rows["is_end"]))


def batch_join(streams: RoomStreams) -> pa.Table:
    """The answer, from joins over all rows at once."""
    first, *others = (readings(streams.table(name)).select([*KEY, value]) for name, value in VALUES.items())
    for other in others:
        first = first.join(other, list(KEY), join_type="inner")
    return first


def _sample(results: pa.Table) -> Table:
    values = list(VALUES.values())
    return text_table(
        "Some results",
        {**dict.fromkeys(KEY, "left"), **dict.fromkeys(values, "right")},
        (
            (row["room"], f"{row['minute']:%H:%M}", *(f"{row[name]:g}" for name in values))
            for row in results.slice(0, 5).to_pylist()
        ),
    )
