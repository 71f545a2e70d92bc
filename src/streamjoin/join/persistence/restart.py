"""Restart: what may be another in the declarations of a join that goes on from a stored state.

The columns of an input beside its key may be others. They are known by name, so their order does not count:
a column that was added is null in the tuples that are stored, one that was removed is no longer read. A
stored run stays as it was written; the manifest notes for each where today's columns are in it. Worked
case: stored with (title, size), declared with (size, lang): size has place 1 and lang is null, so the places
are (1, -1). A column that was removed and added again is null too, whether or not its runs were compacted in
between.

Everything else in an identity must be the same, and so must the type of a column. A column that was added
may not be used where stored tuples were already tested: in `where=` or `group_by`.

The refusal is one paragraph: what was changed, and what to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from streamjoin.columnar.batch import Places
from streamjoin.declare.durations import duration_text
from streamjoin.errors import StateFormatError

Identity = Mapping[str, Any]
Columns = Mapping[str, str]  # payload columns in their order: the type of each, by name

_APART = ("columns", "used")  # may change, within limits
_FOLLOW = ("ranges (us)", "stamps")  # change with something else that can be written


def check_restart(before: Identity, now: Identity) -> None:
    """Refuse to go on as another join than the one that wrote the state."""
    changes = list(_changes(before, now))
    if changes:
        raise StateFormatError(
            f"the query cannot go on from its state: {'; '.join(changes)}. Write what it was, or "
            "begin with a new checkpoint"
        )


def moved(before: Columns, now: Columns) -> Places | None:
    """Where the columns of today were before; None where nothing moved.

    >>> moved({"title": "string", "size": "int64"}, {"size": "int64", "lang": "string"})
    (1, -1)
    """
    if list(before) == list(now):
        return None
    places = {name: place for place, name in enumerate(before)}
    return tuple(places.get(name, -1) for name in now)


def through(stored: Places | None, since: Places | None) -> Places | None:
    """Where today's columns are in a run that was stored with `stored` places, and moved `since`.

    >>> through((1, -1), (-1, 0))
    (-1, 1)
    """
    if stored is None or since is None:
        return since if stored is None else stored
    return tuple(-1 if place < 0 else stored[place] for place in since)


def _changes(before: Identity, now: Identity) -> Iterator[str]:
    changed = [one for one in {**before, **now} if one not in _APART and before.get(one) != now.get(one)]
    told = [one for one in changed if one not in _FOLLOW] or changed
    for what in told:
        yield from _SAID.get(what, _of_item(what))(before.get(what), now.get(what))
    if before.get("inputs") != now.get("inputs") or before.get("kind") != now.get("kind"):
        return
    for name, columns in now["columns"].items():
        yield from _of_columns(name, before["columns"][name], columns, now["used"].get(name, ()))


def _of_columns(name: str, before: Columns, now: Columns, used: list[str]) -> Iterator[str]:
    for column, dtype in now.items():
        if before.get(column, dtype) != dtype:
            yield (
                f"column {column} of {name} was {before[column]} and is now {dtype}: cast it to "
                f"{before[column]}, or give the new one another name"
            )
        if column not in before and column in used:
            yield (
                f"column {column} of {name} is new, and stored tuples do not have it: where= and group_by "
                "cannot use it"
            )


Says = Callable[[Any, Any], Iterator[str]]


def _of_item(what: str) -> Says:
    def say(before: Any, now: Any) -> Iterator[str]:
        yield f"{what} was {_shown(before)} and is now {_shown(now)}"

    return say


def _of_keyword(keyword: str) -> Says:
    def say(before: Any, now: Any) -> Iterator[str]:
        wanted = "leave it out" if before is None else f"write {keyword}={before!r}"
        yield f"{keyword}= was {_shown(before)} and is now {_shown(now)}: {wanted}"

    return say


def _of_each(keyword: str, text: Callable[[Any], str] = str) -> Says:
    """A keyword of `sj.stream`, by the name of the stream."""

    def say(before: Any, now: Any) -> Iterator[str]:
        before, now = before or {}, now or {}
        for name in {**before, **now}:
            was, is_ = before.get(name), now.get(name)
            if was != is_:
                wanted = "leave it out" if was is None else f"write {keyword}={text(was)}"
                shown = ["none" if one is None else text(one) for one in (was, is_)]
                yield f"{keyword}= of {name} was {shown[0]} and is now {shown[1]}: {wanted}"

    return say


def _of_buckets(before: Any, now: Any) -> Iterator[str]:
    yield (
        f"it is in {before} buckets, and this join has {now}: write buckets={before}, or leave it out and "
        "give the checkpoint to write(…) or dataframe(checkpoint=…), which keep it; `streamjoin rebucket` "
        "changes it"
    )


def _of_unique(before: Any, now: Any) -> Iterator[str]:
    for name in sorted({*before} ^ {*now}):
        said = (
            "was unique and no longer is: write" if name in before else "was not unique and now is: leave out"
        )
        yield f"the key of {name} {said} unique=True"


def _of_feeding(before: Any, now: Any) -> Iterator[str]:
    said = [f"is {'' if one else 'not '}an input of another join" for one in (now, before)]
    yield f"this join {said[0]}, and the one that wrote the state {said[1]}"


def _shown(value: Any) -> str:
    return "none" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _duration(micros: int) -> str:
    return f'"{duration_text(micros)}"'


_SAID: dict[str, Says] = {
    "how": _of_keyword("how"),
    "name": _of_keyword("name"),
    "buckets": _of_buckets,
    "key": _of_each("key"),
    "times": _of_each("time"),
    "windows (us)": _of_each("window", _duration),
    "arrival": _of_each("arrival"),
    "unique": _of_unique,
    "feeds a join": _of_feeding,
    "inputs": _of_item("the list of inputs"),
    "key types": _of_item("the type of the key"),
    "grouping": _of_item("group_by"),
    "where": _of_item("where="),
    "filter": _of_item("where="),
    "zone": _of_item("the time zone in which dates and local times are read"),
    "table columns": _of_item("the list of the table's columns"),
}
