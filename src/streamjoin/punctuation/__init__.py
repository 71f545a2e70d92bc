"""Punctuations and their patterns: statements of a stream about which tuples no longer come.

    values.py       one value of a pattern: its order, its Arrow type, its text form
    masks.py        kernels: which rows of a column match a pattern; arrays in, arrays out
    patterns.py     Wildcard, Constant, Range, Enumeration, Empty, Null
    text.py         the parser of the text form `<180, *>`
    punctuation.py  one pattern for each column of a stream

Other packages use only what is imported here. This package imports nothing of the library but `errors`.
"""

from streamjoin.punctuation.patterns import (
    ANY,
    NULL,
    Constant,
    Empty,
    Enumeration,
    Null,
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
    "NULL",
    "Constant",
    "Empty",
    "Enumeration",
    "Null",
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
