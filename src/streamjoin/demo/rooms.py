"""The building of the adaptive-driver paper: what was it like in a room, minute by minute?

Temperature, humidity and light come from three sinks of different rates and bursts and are joined by room
and minute, in one operator: no pair of two is ever stored. What lets go of the state:

- Every sensor says of each minute when it has sent all of it (punctuations). A reading leaves when the two
  other sensors of its room have said so.
- A sensor that fell silent says nothing. Readings of one minute are at most a minute apart, so a window of
  one minute takes no result away, and lets go of readings that wait for such a sensor.

The same streams are joined once more by a join that forgets nothing.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from streamjoin.api.join import Joined, join, stream
from streamjoin.declare.marked import marked
from streamjoin.demo.generators.rooms import DELAYS_US, MINUTE_US, VALUES, RoomStreams, room_schema
from streamjoin.errors import InvariantBroken
from streamjoin.plan.bounds import UnboundedState
from streamjoin.plot import Chart

KEY = ("room", "minute")
NAME = "rooms"
KNOWING = "ends of minutes and a window declared"


@dataclass
class Watched:
    """What was seen of one join while it ran, batch by batch."""

    label: str
    state_rows: list[int] = field(default_factory=list)
    closed_keys: list[int] = field(default_factory=list)  # minutes that are over for some sensors of a room
    results: list[pa.Table] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)  # `<input>_<counter>` over all batches


Run = Callable[[RoomStreams, float, Callable[[int], None]], tuple[Watched, Watched]]


def rooms_join(**sources: Any) -> Joined:
    """The join that knows when a minute is over; sources by name, else for a run in this process."""
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
        name=NAME,
    )


def ignorant_join() -> Joined:
    """The same join with nothing declared; the ends of minutes are left out of its input."""
    return join(
        *(stream(room_schema(name), name=name, key=KEY, columns=[value]) for name, value in VALUES.items()),
        name=f"{NAME}_plain",
    )


def run_local(
    streams: RoomStreams, batch_minutes: float, tick: Callable[[int], None]
) -> tuple[Watched, Watched]:
    """Both joins side by side in this process."""
    knowing, ignorant = Watched(KNOWING), Watched("the same join with nothing declared")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedState)  # that its state grows is what is shown
        runs = ((knowing, rooms_join().local()), (ignorant, ignorant_join().local()))
    for number, piece in enumerate(streams.batches(batch_minutes), start=1):
        for watched, run in runs:
            tables = piece if watched is knowing else {name: readings(piece[name]) for name in piece}
            watched.results.append(run.step(tables))
            state = run.state()
            watched.state_rows.append(sum(state.rows.values()))
            watched.closed_keys.append(state.closed_keys)
        tick(number)
    knowing.counted.update(runs[0][1].counters())
    return knowing, ignorant


def readings(table: pa.Table) -> pa.Table:
    """A stream without the ends of its minutes."""
    return table.filter(pc.invert(table["is_end"]))


def batch_join(streams: RoomStreams) -> pa.Table:
    """The answer, from joins over all rows at once."""
    first, *others = (readings(streams.table(name)).select([*KEY, value]) for name, value in VALUES.items())
    for other in others:
        first = first.join(other, list(KEY), join_type="inner")
    return first


def check_answer(watched: Watched, expected: pa.Table) -> None:
    """The join gave exactly the rows of the batch join."""
    order = [(name, "ascending") for name in expected.column_names]
    found = pa.concat_tables(watched.results).select(expected.column_names).cast(expected.schema)
    if not found.sort_by(order).equals(expected.sort_by(order)):
        raise InvariantBroken(
            f"the join with {watched.label} gave {len(found):,} rows that differ from the batch join's "
            f"{len(expected):,}; please report this with the command you ran"
        )


# What is told


def show(streams: RoomStreams, run: Run, console: Console, out: Path, batch_minutes: float) -> None:
    """Run the demo and tell about it."""

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    say("[bold]What was it like in a room, minute by minute?[/] temperature ⋈ humidity ⋈ light\n")
    say(
        "Three sinks get readings at different rates: temperature every minute, humidity every two, sent "
        "with a delay of up to three, and light in bursts. Each says when a room's minute is over; some "
        "humidity sensors fall silent for an hour, and then only the window of a minute lets go.\n"
    )
    console.print(rooms_join().explain(), highlight=False, soft_wrap=True)
    console.print()
    expected, cuts = batch_join(streams), streams.cuts_us(batch_minutes)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("batches", total=len(cuts))
        both = run(streams, batch_minutes, lambda done: progress.update(task, completed=done))
    for watched in both:
        check_answer(watched, expected)
    knowing, ignorant = both
    console.print(_sample(knowing))
    total = sum(len(streams.table(name)) for name in VALUES)
    say(
        f"{len(expected):,} results from {total:,} rows of {streams.hours:g} hours, the same as the batch "
        f"join over all rows gives.\nTuples held at the end: {knowing.state_rows[-1]:,} (at most "
        f"{max(knowing.state_rows):,}, and {max(knowing.closed_keys):,} minutes that were over for some "
        f"of their sensors), by {ignorant.label} {ignorant.state_rows[-1]:,}.\n"
    )
    console.print(_where_they_went(knowing.counted))
    hours = [0.0, *(cut / (60 * MINUTE_US) for cut in cuts.tolist())]
    chart = Chart(
        "Tuples held by the join of temperature, humidity and light",
        "hours",
        "tuples held",
        {watched.label: (hours, [0, *watched.state_rows]) for watched in both},
    )
    console.print(chart.terminal(), highlight=False, markup=False, soft_wrap=True)
    say(f"\nPicture: {chart.png(out / 'demo-rooms.png')}")


def _sample(watched: Watched) -> Table:
    table = Table(title="Some results", title_justify="left")
    for name in (*KEY, *VALUES.values()):
        table.add_column(name, justify="left" if name in KEY else "right")
    for row in pa.concat_tables(watched.results).slice(0, 5).to_pylist():
        table.add_row(row["room"], f"{row['minute']:%H:%M}", *(f"{row[name]:g}" for name in VALUES.values()))
    return table


def _where_they_went(counted: Counter[str]) -> Table:
    table = Table(title="What let go of the readings", title_justify="left")
    table.add_column("")
    for name in VALUES:
        table.add_column(name, justify="right")
    for what, counter in (
        ("readings", "rows"),
        ("not stored: nothing to wait for", "dropped"),
        ("let go by ends of minutes", "purged"),
        ("let go by the window", "invalidated"),
    ):
        table.add_row(what, *(f"{counted[f'{name}_{counter}']:,}" for name in VALUES))
    return table
