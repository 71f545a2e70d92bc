"""SQL conditions as text: tokens, and a tree of operators by Spark's precedence.

    or < and < not < comparison, is, in, between, like < + - || < * / % < sign < ::type

What is not read here (functions of Spark's catalogue, case, subqueries) raises `NotTranslated`, with the
reason in words; whether Spark itself can test the condition is for the caller to find out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamjoin.declare.durations import UNITS_US

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[LSYDF])?(?![A-Za-z_0-9]))
    | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<name>[A-Za-z_][A-Za-z_0-9]*)
    | (?P<sign><=>|<=|>=|<>|!=|==|::|\|\||[-+*/%(),.=<>!])
    )""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_COMPARISONS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}
_IN_INTERVAL = re.compile(r"\s*([+-]?\d+)\s+([A-Za-z]+)")


class NotTranslated(Exception):
    """The reason why a condition is not tested by the join itself."""


@dataclass(frozen=True)
class Call:
    """An operator or a function of operands; leaves are `Literal` and `Name`."""

    name: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Literal:
    """A number, text, boolean or null as written; `kind` tells times and intervals from text."""

    kind: str
    value: Any


@dataclass(frozen=True)
class Name:
    """A column, with what stands before it: `orders.total`."""

    parts: tuple[str, ...]


@dataclass(frozen=True)
class Token:
    """A piece of the text: its kind and, for words, its lower-case form."""

    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "name" else ""


def parse(text: str) -> Any:
    """The tree of a condition."""
    parser = _Parser(_tokens(text))
    found = parser.either()
    if parser.here.kind != "end":
        raise NotTranslated(f"{parser.here.text!r} stands where the condition should end")
    return found


def _tokens(text: str) -> list[Token]:
    found, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotTranslated(f"{text[at:].strip()[:20]!r} cannot be read")
        kind = match.lastgroup or ""
        found.append(Token(kind, match.group(kind)))
        at = match.end()
    return [*found, Token("end", "")]


class _Parser:
    """Recursive descent, one method a level of precedence."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def here(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self.here
        self._at += token.kind != "end"
        return token

    def _took(self, *words: str) -> str | None:
        """The next word or sign if it is one of these."""
        token = self.here
        said = token.word or (token.text if token.kind == "sign" else "")
        if said in words:
            self._next()
            return said
        return None

    def _expect(self, word: str) -> None:
        if self._took(word) is None:
            raise NotTranslated(f"{self.here.text or 'the end'!r} stands where {word!r} should")

    def _chain(self, lower: Callable[[], Any], *signs: str) -> Any:
        found = lower()
        while sign := self._took(*signs):
            found = Call(sign, (found, lower()))
        return found

    def either(self) -> Any:
        return self._chain(self._both, "or")

    def _both(self) -> Any:
        return self._chain(self._negated, "and")

    def _negated(self) -> Any:
        if self._took("not", "!"):
            return Call("not", (self._negated(),))
        return self._compared()

    def _compared(self) -> Any:
        found = self._sum()
        while True:
            if sign := self._took(*_COMPARISONS, "<=>"):
                found = Call(_COMPARISONS.get(sign, sign), (found, self._sum()))
            elif self._took("is"):
                found = self._is(found)
            elif self.here.word in ("not", "in", "between", "like"):
                negated = self._took("not")
                found = self._among(found)
                found = Call("not", (found,)) if negated else found
            else:
                return found

    def _is(self, operand: Any) -> Any:
        negated = self._took("not")
        if self._took("distinct"):
            self._expect("from")
            same = Call("<=>", (operand, self._sum()))
            return same if negated else Call("not", (same,))
        word = self._took("null", "true", "false", "unknown")
        if word is None:
            raise NotTranslated(f"{self.here.text!r} follows IS")
        found = Call(f"is {'null' if word == 'unknown' else word}", (operand,))
        return Call("not", (found,)) if negated else found

    def _among(self, operand: Any) -> Any:
        word = self._took("in", "between", "like")
        if word == "in":
            return Call("in", (operand, *self._listed()))
        if word == "between":
            low = self._sum()
            self._expect("and")
            high = self._sum()
            return Call("and", (Call(">=", (operand, low)), Call("<=", (operand, high))))
        if word == "like":
            return Call("like", (operand, self._sum()))
        raise NotTranslated(f"{self.here.text or 'the end'!r} follows NOT")

    def _listed(self) -> list[Any]:
        self._expect("(")
        if self.here.word == "select":
            raise NotTranslated("a subquery is no condition on one row")
        found = []
        while not self._took(")"):
            found.append(self.either())
            if self.here.text != ")":
                self._expect(",")
        return found

    def _sum(self) -> Any:
        return self._chain(self._product, "+", "-", "||")

    def _product(self) -> Any:
        return self._chain(self._signed, "*", "/", "%")

    def _signed(self) -> Any:
        if self._took("-"):
            return Call("minus", (self._signed(),))
        if self._took("+"):
            return self._signed()
        found = self._primary()
        while self._took("::"):
            found = Call("cast", (found, self._type()))
        return found

    def _primary(self) -> Any:
        token = self._next()
        if token.text == "(" and token.kind == "sign":
            found = self.either()
            self._expect(")")
            return found
        if token.kind == "number":
            return _number(token.text)
        if token.kind == "text":
            return Literal("text", _unquoted(token.text))
        if token.kind == "quoted":
            return self._name(token.text[1:-1].replace("``", "`"))
        if token.kind == "name":
            return self._word(token)
        raise NotTranslated(f"{token.text or 'the end'!r} stands where a value should")

    def _word(self, token: Token) -> Any:
        word, following = token.word, self.here
        if word in ("true", "false"):
            return Literal("boolean", word == "true")
        if word == "null":
            return Literal("null", None)
        if word in ("date", "timestamp", "timestamp_ntz") and following.kind == "text":
            return Literal(word, _unquoted(self._next().text))
        if word == "interval" and following.kind in ("text", "number"):
            return self._interval()
        if word in ("case", "exists", "select"):
            raise NotTranslated(f"{token.text.upper()} is not read here")
        if following.text == "(" and following.kind == "sign":
            return self._function(word)
        return self._name(token.text)

    def _name(self, first: str) -> Name:
        parts = [first]
        while self._took("."):
            token = self._next()
            if token.kind not in ("name", "quoted"):
                raise NotTranslated(f"{token.text!r} follows a point")
            parts.append(token.text if token.kind == "name" else token.text[1:-1].replace("``", "`"))
        return Name(tuple(parts))

    def _function(self, name: str) -> Any:
        if name == "cast":
            self._expect("(")
            operand = self.either()
            self._expect("as")
            found = Call("cast", (operand, self._type()))
            self._expect(")")
            return found
        return Call(f"{name}()", tuple(self._listed()))

    def _type(self) -> Literal:
        token = self._next()
        if token.kind != "name":
            raise NotTranslated(f"{token.text!r} is no type")
        name, numbers = token.word, []
        if self._took("("):
            while not self._took(")"):
                numbers.append(self._next().text)
                self._took(",")
        return Literal("type", (name, *numbers))

    def _interval(self) -> Literal:
        """`interval 5 minutes`, `interval '5' minute`, `interval '1 hour 5 minutes'`."""
        micros = 0
        token = self.here
        text = _unquoted(token.text) if token.kind == "text" else ""
        if token.kind == "text" and _IN_INTERVAL.match(text):
            self._next()
            rest = _IN_INTERVAL.sub("", text)
            if rest.strip():
                raise NotTranslated(f"interval {text!r} cannot be read")
            parts = _IN_INTERVAL.findall(text)
            return Literal("interval", sum(int(count) * _unit_us(unit) for count, unit in parts))
        while self.here.kind in ("text", "number"):
            count = self._next()
            plain = _unquoted(count.text) if count.kind == "text" else count.text
            if not re.fullmatch(r"[+-]?\d+", plain.strip()):
                raise NotTranslated(f"interval {plain!r} is no whole number")
            micros += int(plain) * _unit_us(self._next().text)
            if self.here.word == "to":
                raise NotTranslated("an interval from one unit TO another is not read here")
        return Literal("interval", micros)


def _unit_us(name: str) -> int:
    micros = UNITS_US.get(name.lower().removesuffix("s"))
    if micros is None:
        raise NotTranslated(f"an interval in {name!r} has no fixed length, or is none")
    return micros


def _number(text: str) -> Literal:
    upper = text.upper()
    for suffix, kind in (("BD", "decimal"), ("L", "long"), ("S", "short"), ("Y", "byte")):
        if upper.endswith(suffix):
            return Literal(kind, text[: -len(suffix)])
    if upper[-1] in "DF":
        return Literal("double" if upper[-1] == "D" else "float", text[:-1])
    if "E" in upper:
        return Literal("double", text)
    return Literal("decimal" if "." in text else "whole", text)


def _unquoted(text: str) -> str:
    """The value of a quoted text, escapes as Spark reads them."""
    quote, inner = text[0], text[1:-1]
    inner = inner.replace(quote * 2, quote)
    return re.sub(
        r"\\(.)",
        lambda m: m.group(0) if m.group(1) in "%_" else _ESCAPES.get(m.group(1), m.group(1)),
        inner,
        flags=re.DOTALL,
    )
