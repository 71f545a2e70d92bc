"""Scripts of bugs that the simulation found in the library, as small as it made them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.simulation.checks import check
from tests.simulation.script import (
    START,
    Between,
    End,
    Eq,
    Input,
    Operation,
    Punctuate,
    Push,
    Restart,
    Row,
    Script,
    Settings,
)

FOUND: dict[str, tuple[tuple[Input, ...], Settings, tuple[Operation, ...]]] = {
    # 'a' and 'a\0' were one value to numpy, so nothing was closed below the second
    "ordered keys that end in a zero byte": (
        (Input(types=("binary",), ordered=1, punctuation="marked"), Input(types=("binary",))),
        Settings(),
        (
            Push({0: (Row((b"",), None, 1),)}),
            Push({0: (Row((b"\0",), None, 2), Row((b"\0",), None, 3), Row((b"",), None, 4, flag=True))}),
        ),
    ),
    # counted as the word of one partition only
    "a punctuation by hand is the whole input's": (
        (Input(types=("int64",), sequence=2, punctuation="marked", partitions=2), Input(types=("int64",))),
        Settings(),
        (Punctuate(0, (Eq(1),)),),
    ),
    # 10.0 was smaller than 9.5, as text is
    "the smaller of two rows, by value": (
        (Input(types=("int64",), unique=True, x="float64"), Input(types=("int64",))),
        Settings(),
        (Push({0: (Row((1,), None, 1, 9.5), Row((1,), None, 2, 10.0))}),),
    ),
    # its values were not brought to the key's type, nor refused
    "a punctuation over all columns is checked": (
        (Input(types=("decimal2", "bool")), Input(types=("decimal2", "bool"))),
        Settings(),
        (Punctuate(0, (Between(None, Decimal(0)), Eq(value=False)), form="whole"), Restart()),
    ),
    # the kept second row went first and closed the key before the one that counts
    "a kept duplicate does not go before its first": (
        (Input(types=("int64",)), Input(types=("int64",), time="micros", unique=True, on_violation="keep")),
        Settings(quota=1),
        (Push({0: (Row((1,), None, 1),)}), Push({1: (Row((1,), 5, 1001), Row((1,), 4, 1002))})),
    ),
    # a late row that is kept is the first of its key, what follows is a duplicate
    "a kept late row is the first of its unique key": (
        (
            Input(types=("int64",), time="micros", window=9, lateness=0),
            Input(types=("int64",), time="micros", lateness=0, unique=True, sequence=1, on_violation="keep"),
        ),
        Settings(quota=1),
        (
            Push({0: (Row((1,), 10, 1),), 1: (Row((2,), 10, 1001, offset=1),)}),
            Push({1: (Row((1,), 5, 1002, offset=2), Row((1,), 10, 1003, offset=3))}),
        ),
    ),
    # when the other input ended, an idle one lost the watermark that it had been carried to
    "a watermark never runs backwards": (
        (
            Input(types=("int64",), time="micros", lateness=4, idle=0),
            Input(types=("int64",), time="micros", window=1, lateness=1),
        ),
        Settings(),
        (
            Push({1: (Row((1,), 3, 1001),)}),
            Push({1: (Row((2,), 6, 1002),)}),
            End(1),
            Push({0: (Row((1,), 4, 1),)}),
        ),
    ),
    # a range that touched no key left an empty batch waiting, and what follows took another way
    "a punctuation by hand settles the partial punctuations for its key": (
        (Input(types=("int64",), sequence=2, punctuation="marked", partitions=2), Input(types=("int64",))),
        Settings(),
        (
            Punctuate(0, (Between(4, 6),)),
            Push({0: (Row((2,), None, 1, flag=True, offset=1),)}),
            Punctuate(0, (Eq(2),)),
        ),
    ),
    # a date was no value of the timestamp that the key is widened to, a timestamp none of the column
    "a punctuation speaks of the input's own column": (
        (Input(types=("date",)), Input(types=("micros",))),
        Settings(),
        (Push({1: (Row((START,), None, 1001),)}), Punctuate(0, (Eq(START),), form="whole")),
    ),
    # remembered for ever, since nothing could fulfil it any more
    "a wildcard of one partition after the end": (
        (
            Input(types=("int64",), sequence=2, punctuation="marked", wildcard=True, partitions=2),
            Input(types=("int64",)),
        ),
        Settings(),
        (End(0), Push({0: (Row((None,), None, 1, flag=True, offset=1),)})),
    ),
}


@pytest.mark.parametrize("found", FOUND.values(), ids=FOUND)
def test_found_once(found: tuple[tuple[Input, ...], Settings, tuple[Operation, ...]]) -> None:
    check(Script(*found))
