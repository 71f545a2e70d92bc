"""The columns of a result: the key columns under the first input's names, then each input's other
columns in declared order, led by its own key columns where these are asked for. A key column keeps its
name; any other name that another input has too, or that equals a key's, is prefixed on every side with its
input's name. Upper and lower case count as one name between inputs, because they are one to Spark.

Qualified names do not depend on the order of the inputs: every column of an input is prefixed, and the key
has its name where all inputs call it the same, else `key` (`key_1`, `key_2`, … of several).

Worked case: news(sno, title) with access(sno, Title, ip) gives sno, news_title, access_Title, ip.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from itertools import permutations
from typing import NamedTuple, Protocol

import pyarrow as pa

from streamjoin.columnar.types import plain
from streamjoin.errors import InvalidJoin


class Columns(Protocol):
    """What a result takes of an input: a stream, or a table."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def payload(self) -> tuple[str, ...]: ...
    def type_of(self, column: str) -> pa.DataType: ...


class Member(NamedTuple):
    """One column of a result: of which input, under which name there, whether it is a key."""

    input: str
    column: str
    is_key: bool = False


def joined_schema(
    streams: Sequence[Columns],
    key_types: Sequence[pa.DataType],
    *,
    own_keys: bool = False,
    qualified: bool = False,
) -> pa.Schema:
    """Names and types of the columns of a joined row."""
    key_names = _key_names(streams) if qualified else streams[0].key
    keys = [Member(streams[0].name, column, is_key=True) for column in key_names]
    others = [
        Member(stream.name, column)
        for stream in streams
        for column in ((*stream.key, *stream.payload) if own_keys else stream.payload)
    ]
    types = list(key_types)
    for stream in streams:
        types += [*(key_types if own_keys else ()), *(plain(stream.type_of(c)) for c in stream.payload)]
    return pa.schema(zip(result_names([*keys, *others], qualified=qualified), types, strict=True))


def _key_names(streams: Sequence[Columns]) -> tuple[str, ...]:
    """The names of the key columns, whatever the order of the inputs."""
    width = len(streams[0].key)
    places = ["key"] if width == 1 else [f"key_{i + 1}" for i in range(width)]
    called = [{stream.key[i] for stream in streams} for i in range(width)]
    return tuple(
        names.pop() if len(names) == 1 else place for names, place in zip(called, places, strict=True)
    )


def result_names(members: Sequence[Member], *, qualified: bool = False) -> list[str]:
    """The name of each column of a result; a prefixed one may clash again, and then prefixes that one too.

    `qualified` prefixes all but the keys.
    """
    prefixed = {i for i, one in enumerate(members) if qualified and not one.is_key}
    while True:
        names = [
            f"{one.input}_{one.column}" if i in prefixed else one.column for i, one in enumerate(members)
        ]
        clashing = _clashing(members, names) - prefixed
        if not clashing:
            _check_names(names)
            return names
        prefixed |= clashing


def _clashing(members: Sequence[Member], names: Sequence[str]) -> set[int]:
    """The columns that must be told from another one: a key only from another key."""
    alike: dict[str, list[int]] = defaultdict(list)
    for i, name in enumerate(names):
        alike[name.casefold()].append(i)
    return {
        i
        for group in alike.values()
        for i, other in permutations(group, 2)
        if (names[i] == names[other] or members[i].input != members[other].input)
        and (members[other].is_key or not members[i].is_key)
    }


def _check_names(names: Sequence[str]) -> None:
    """Refuse a result that has two columns of one name."""
    clashing = sorted(name for name, count in Counter(names).items() if count > 1)
    if clashing:
        raise InvalidJoin(
            f"the result would have more than one column {', '.join(map(repr, clashing))}; "
            "rename a column or an input, or choose columns=[…]"
        )


def free_names(wanted: Sequence[str], taken: Collection[str]) -> tuple[str, ...]:
    """Names that the library adds to a user's columns, with as many underscores before them as it takes.

    >>> free_names(("_kind", "_input"), ["k", "_Kind"])
    ('__kind', '__input')
    """
    folded = {name.casefold() for name in taken}
    while any(name.casefold() in folded for name in wanted):
        wanted = [f"_{name}" for name in wanted]
    return tuple(wanted)
