"""The parser of the text form of patterns and punctuations: `<180, *>`.

    punctuation  <pattern, pattern, ...>         one pattern for each column
    pattern      *   value   [value, value)   (, value]   {value, value}   {}
    value        180   12.50   true   "JSON string"   2026-11-15T10:00:00+01:00   0x00ff

Blanks between tokens are ignored. A string is a JSON string, so it may contain any character. The result is
simplified: parsing the text of a `Punctuation` gives an equal punctuation. Malformed text or a value of the
wrong type is `BadInput`, which names the column's position (from 0), what was found and what was expected.
Cost: linear in the text.

    >>> parse_pattern("[1, 5)", pa.int64())
    Range(low=1, high=5, low_closed=True, high_closed=False)
"""

import json
import re
from collections.abc import Sequence

import pyarrow as pa

from streamjoin.errors import BadInput
from streamjoin.punctuation.patterns import ANY, NULL, Constant, Enumeration, Pattern, Range, simplify
from streamjoin.punctuation.values import Value, kind, reader

BLANKS = " \t\r\n"

_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*")
      | (?P<sign>[<>\[\](){},*])
      | (?P<word>[^<>\[\](){},*"]+)
      | (?P<broken>.)""",
    re.VERBOSE | re.DOTALL,
)


def parse_pattern(text: str, dtype: pa.DataType, *, bare_strings: bool = False) -> Pattern:
    """Parse the pattern of a column of this type.

    With `bare_strings`, as inside an XML element, a string needs no quotes: the text, trimmed of blanks, is
    the constant, unless it is exactly `*`, or begins with `{`, `[`, `(` or `"` and parses as a pattern as a
    whole. Values inside such a pattern keep their quotes: `{a, b}` is a constant, `{"a", "b"}` a list.

    >>> parse_pattern(" Smart Card ", pa.string(), bare_strings=True)
    Constant(value='Smart Card')
    """
    bare = text.strip(BLANKS)
    if not bare_strings or not bare or bare == "*" or kind(dtype).name != "string":
        return _whole_pattern(text, dtype)
    if bare[0] not in '{[("':
        return Constant(bare)
    try:
        return _whole_pattern(bare, dtype)
    except BadInput:
        return Constant(bare)


def _whole_pattern(text: str, dtype: pa.DataType) -> Pattern:
    scan = _Scan(text)
    found = scan.pattern(dtype)
    scan.take_end()
    return found


def parse_patterns(text: str, types: Sequence[pa.DataType]) -> tuple[Pattern, ...]:
    """Parse the text of a punctuation: one pattern for each type."""
    scan = _Scan(text)
    scan.take("<")
    found = []
    for position, dtype in enumerate(types):
        if position:
            scan.take(",", f"',' and a pattern for column {position}: the stream has {len(types)} columns")
        scan.column = position
        found.append(scan.pattern(dtype))
    scan.take(">", f"'>': the stream has {len(types)} columns")
    scan.take_end()
    return tuple(found)


class _Scan:
    """A token stream with a cursor. `column` is the position that errors name."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.column: int | None = None
        self._tokens = [
            (str(match.lastgroup), match.group().strip(BLANKS))
            for match in _TOKEN.finditer(text)
            if match.group().strip(BLANKS)
        ]
        self._at = 0

    def pattern(self, dtype: pa.DataType) -> Pattern:
        """Parse one pattern."""
        if self._skip("*"):
            return ANY
        if self._skip("{"):
            return self._list(dtype)
        if self._peek() == ("word", "null"):
            self._at += 1
            return NULL
        for bracket in "[(":
            if self._skip(bracket):
                return self._range(dtype, low_closed=bracket == "[")
        return Constant(self._value(dtype, "a value, '*', '{', '[' or '('"))

    def _list(self, dtype: pa.DataType) -> Pattern:
        values: list[Value] = []
        while not self._skip("}"):
            if values:
                self.take(",", "',' or '}'")
            values.append(self._value(dtype))
        return simplify(Enumeration(tuple(values)))

    def _range(self, dtype: pa.DataType, *, low_closed: bool) -> Pattern:
        low = None if self._skip(",") else self._value(dtype)
        if low is not None:
            self.take(",")
        high = None if self._peek()[1] in ("]", ")") else self._value(dtype)
        high_closed = self._skip("]")
        if not high_closed:
            self.take(")", "']' or ')'")
        return simplify(Range(low, high, low_closed, high_closed))

    def _value(self, dtype: pa.DataType, expected: str = "a value") -> Value:
        group, token = self._peek()
        is_string = kind(dtype).name == "string"
        if group != ("string" if is_string else "word"):
            raise self._error(f"{expected}; here, {kind(dtype).example}")
        try:
            value = json.loads(token, strict=False) if is_string else reader(dtype)(token)
        except json.JSONDecodeError as error:
            raise self._error(kind(dtype).example) from error
        except BadInput as error:
            raise BadInput(f"{self._place()}{error}") from error
        self._at += 1
        return value

    def take(self, sign: str, expected: str | None = None) -> None:
        """Consume a token that is required here."""
        if not self._skip(sign):
            raise self._error(expected or f"{sign!r}")

    def take_end(self) -> None:
        """Require the end of the text."""
        if self._at < len(self._tokens):
            raise self._error("the end of the text")

    def _skip(self, sign: str) -> bool:
        found = self._peek() == ("sign", sign)
        self._at += found
        return found

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _place(self) -> str:
        column = "" if self.column is None else f", column {self.column}"
        return f"In the punctuation text {self.text!r}{column}: "

    def _error(self, expected: str) -> BadInput:
        group, token = self._peek()
        found = "the text ends" if group == "end" else f"found {token!r}"
        return BadInput(f"{self._place()}{found}; expected {expected}.")
