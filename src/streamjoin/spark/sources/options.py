"""Options of a Spark source: known names, required ones given, numbers that are numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from streamjoin.errors import InvalidJoin


@dataclass(frozen=True)
class Options:
    """What a user gave to a source, and what the source knows: each option's name and what it is."""

    source: str
    given: Mapping[str, str]
    known: Mapping[str, str]

    def __post_init__(self) -> None:
        for name in self.given:
            if name not in self.known:
                listed = "; ".join(f"{each}: {what}" for each, what in self.known.items())
                raise InvalidJoin(f"{self.source} has no option {name!r}. Give {listed}.")

    def text(self, name: str) -> str | None:
        """Without the blanks around it; None = not given."""
        return self.given[name].strip() if name in self.given else None

    def required(self, name: str) -> str:
        """An option that must be given and not be empty."""
        text = self.text(name)
        if not text:
            raise InvalidJoin(f"{self.source} needs the option {name!r}. Give {self.known[name]}.")
        return text

    def value(self, name: str, kind: Callable[[str], Any]) -> Any:
        """An option that is given, as `kind` reads it: int, float or str."""
        text = self.required(name)
        try:
            return kind(text)
        except ValueError as error:
            raise self.wrong(name) from error

    def at_least_one(self, name: str, default: int) -> int:
        """A whole number from 1 on."""
        number: int = self.value(name, int) if name in self.given else default
        if number < 1:
            raise self.wrong(name)
        return number

    def flag(self, name: str) -> bool:
        """'true' or 'false', in any case; not given = false."""
        text = (self.text(name) if name in self.given else "false") or ""
        if text.lower() not in ("true", "false"):
            raise self.wrong(name)
        return text.lower() == "true"

    def wrong(self, name: str) -> InvalidJoin:
        """The error for a value that cannot be."""
        return InvalidJoin(f"{self.source} got {name}={self.given[name]!r}. Give {self.known[name]}.")
