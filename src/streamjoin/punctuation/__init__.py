"""Patterns and punctuations: what a stream promises about its own future.

    values.py       one value: its order, its Arrow type, its text
    masks.py        which rows of a column match; arrays in, arrays out
    patterns.py     Wildcard, Constant, Range, Enumeration, Empty
    text.py         reading the text form `<180, *>`
    punctuation.py  one pattern for each column of a stream

Only what is imported here is for other packages. Needs nothing of the library but `errors`.
"""

from streamjoin.punctuation.patterns import (
    ANY,
    Constant,
    Empty,
    Enumeration,
    Pattern,
    Range,
    Wildcard,
    between,
    check,
    pattern,
    simplify,
)
from streamjoin.punctuation.punctuation import Punctuation
from streamjoin.punctuation.text import parse_pattern

__all__ = [
    "ANY",
    "Constant",
    "Empty",
    "Enumeration",
    "Pattern",
    "Punctuation",
    "Range",
    "Wildcard",
    "between",
    "check",
    "parse_pattern",
    "pattern",
    "simplify",
]
