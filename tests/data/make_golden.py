"""A state that later versions must still read: `python -m tests.data.make_golden` writes it.

The story has two inputs with windows, a range, single punctuations, partial punctuations, tombstoned
rows, a key propagated early and keys of a unique input. Its first half made the file; its second half must
go on from the file as it would have gone on without a stop. Write a new file only together with a
new format version, and keep the old file and its reader.
"""

from __future__ import annotations

from pathlib import Path

import streamjoin as sj
from tests.tables import Story, stream

FILE = Path(__file__).with_name("golden_state_v1.bin")


def golden_join() -> sj.Joined:
    """Auctions, each once, with their bids: at most 100 s after the auction, 50 s before it."""
    auction = stream(
        "auction",
        "id t:time item:str",
        time="t",
        window="100 seconds",
        lateness="0 seconds",
        unique=True,
        arrival=sj.clustered(slack=2),
    )
    bid = stream(
        "bid",
        "id t:time price:float end:bool part:str o",
        time="t",
        window="50 seconds",
        lateness="20 seconds",
        idle="200 seconds",
        punctuation=sj.marked("end", partitions=2),
        sequence=["part", "o"],
    )
    return sj.join(auction, bid, name="golden")


def first_half(run: Story) -> list[list[tuple]]:
    return [
        run.push("auction", "id t item\n 1 10 tea\n 2 11 pot\n 3 12 cup\n 4 13 jug\n 5 14 mug\n 6 15 urn"),
        run.push(
            "bid",
            """id t  price end   part o
               1  12 1.5   false p    1
               2  13 2.5   false q    1
               7  14 9.0   false p    2
               7  40 9.5   false p    3
               8  44 7.0   false q    2""",
        ),
        run.punctuate("bid", id=2),  # auction 2 is over: its tuple is purged
        run.punctuate("bid", id=sj.between(100, 200)),  # these will have no bids
        run.punctuate("auction", id=8),  # an auction that never was: propagated early
        run.push(
            "bid", "id t price end part o\n 1 - - true p 4\n 3 - - true q 3"
        ),  # partial punctuations of one partition
    ]


def second_half(run: Story) -> list[list[tuple]]:
    return [
        run.push(
            "bid", "id t price end part o\n 4 60 4.0 false p 5\n 5 61 5.25 false q 4\n 2 62 0.1 false p 6"
        ),
        run.push("auction", "id t item\n 7 55 pan\n 150 56 box\n 3 57 cup\n 8 58 lid"),
        run.push("bid", "id t price end part o\n 1 - - true q 5\n 3 70 3.0 false p 7"),
        run.advance("auction", 300),
        run.push("bid", "id t price end part o\n 6 301 6.0 false p 8\n 9 302 1.0 false q 6"),
        run.finish(),
    ]


def main() -> None:
    run = Story(golden_join())
    first_half(run)
    FILE.write_bytes(run.run.snapshot())
    print(f"{FILE}: {FILE.stat().st_size} bytes, {run.state()}")


if __name__ == "__main__":
    main()
