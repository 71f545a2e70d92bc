"""Join graph: the equivalence classes of columns, read from edges such as `a.x = b.x`.

Columns that edges connect, over any number of steps, are one *class*: they have one value in a result.
Worked case: `a.x = b.x and b.x = c.x and c.y = d.y` has the classes {a.x, b.x, c.x} and {c.y, d.y}. Inputs
can be joined when they share a class; the shared classes are the key of the operator that joins them.

A class stands once in the result, under the name of its column in the first input that has it. Result
columns do not depend on the order of operators: inputs as declared, of each first the classes that are new,
then its other columns; a name that occurs twice is prefixed as in `plan.output`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streamjoin.columnar.types import common_type
from streamjoin.declare.stream import Stream
from streamjoin.errors import InvalidJoin
from streamjoin.plan.output import Member, free_names, result_names

_COLUMN = r"\s*(\w+)\.(\w+|`(?:[^`]|``)*`)\s*"
_EDGE = re.compile(f"{_COLUMN}={_COLUMN}")
_AND = re.compile(r"\s+and\s+(?=(?:[^`]*`[^`]*`)*[^`]*$)", re.IGNORECASE)  # outside of backticks
_WRITE = 'write edges as on="a.x = b.x and b.y = c.y", or as a list of such equations'

InputColumn = tuple[int, str]  # the number of an input and a column of it


@dataclass(frozen=True)
class ColumnClass:
    """Columns of several inputs that are equal in every result: by the number of the input."""

    columns: Mapping[int, str]

    @property
    def first(self) -> InputColumn:
        """The column that names it."""
        return min(self.columns.items())


@dataclass(frozen=True)
class Graph:
    """Inputs and the classes that connect them."""

    streams: tuple[Stream, ...]
    classes: tuple[ColumnClass, ...]
    qualified: bool = False  # names of columns do not depend on the order of the inputs

    def of_input(self, number: int) -> frozenset[int]:
        """The numbers of the classes that an input has a column of."""
        return frozenset(i for i, one in enumerate(self.classes) if number in one.columns)

    def others(self, number: int) -> list[str]:
        """The columns of an input that are in the result and in no class."""
        stream = self.streams[number]
        joined = {one.columns.get(number) for one in self.classes}
        chosen = stream.schema.names if stream.columns is None else stream.columns
        return [name for name in chosen if name not in joined and name not in stream.hidden_columns]

    @cached_property
    def names(self) -> dict[InputColumn, str]:
        """The result's name of each column that is in it, in the result's order; of a class its first."""
        first = {one.first for one in self.classes}
        members: list[InputColumn] = []
        for i, stream in enumerate(self.streams):
            members += [(i, name) for name in stream.schema.names if (i, name) in first]
            members += [(i, name) for name in self.others(i)]
        called = self._class_names() if self.qualified else {}
        named = result_names(
            [
                Member(self.streams[i].name, called.get((i, name), name), (i, name) in first)
                for i, name in members
            ],
            qualified=self.qualified,
        )
        return dict(zip(members, named, strict=True))

    def _class_names(self) -> dict[InputColumn, str]:
        """Names of classes whatever the order of the inputs, by the first column: theirs where all inputs
        call it the same and no other class has that name, else `<input>_<column>` of the least input's.
        """
        names = [{*one.columns.values()} for one in self.classes]
        plain = Counter(min(one) for one in names if len(one) == 1)
        found = {}
        for one, called in zip(self.classes, names, strict=True):
            least = min((self.streams[i].name, column) for i, column in one.columns.items())
            alone = len(called) == 1 and plain[min(called)] == 1
            found[one.first] = min(called) if alone else "_".join(least)
        return found

    @cached_property
    def named(self) -> list[dict[str, str]]:
        """For each input, the result's name of each column of it that is in the result."""
        found: list[dict[str, str]] = [{} for _ in self.streams]
        for i, one in enumerate(self.classes):
            for number, column in one.columns.items():
                found[number][column] = self.class_name(i)
        for i, names in enumerate(found):
            names.update({name: self.names[i, name] for name in self.others(i)})
        return found

    @cached_property
    def stamps(self) -> tuple[str, ...]:
        """Hidden columns of results on their way into the next operator: the latest time, and until when."""
        return free_names(("_latest", "_until"), self.names.values())

    def class_name(self, number: int) -> str:
        """The name of a class in the result."""
        return self.names[self.classes[number].first]

    def equation(self, number: int, inputs: Sequence[int]) -> str:
        """A class in words, as far as these inputs have it."""
        columns = self.classes[number].columns
        return " = ".join(f"{self.streams[i].name}.{columns[i]}" for i in inputs if i in columns)


def graph_of(streams: Sequence[Stream], on: Any, *, qualified: bool = False) -> Graph:
    """The classes that the edges make of the inputs' columns; refused where that is no join."""
    edges = [_edge(text, streams) for text in _texts(on)]
    graph = Graph(tuple(streams), _classes(edges, streams), qualified)
    for one in graph.classes:
        _check_class(streams, one)
    _check_connected(graph)
    return graph


def _texts(on: Any) -> list[str]:
    texts = [on] if isinstance(on, str) else on
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(one, str) for one in texts):
        raise InvalidJoin(f"on={on!r}; {_WRITE}")
    return [edge for text in texts for edge in _AND.split(text)]


def _edge(text: str, streams: Sequence[Stream]) -> tuple[InputColumn, InputColumn]:
    found = _EDGE.fullmatch(text)
    if found is None:
        raise InvalidJoin(f"on= has {text.strip()!r}, which is no edge; {_WRITE}")
    left, right = (_input_column(text, found.group(at), found.group(at + 1), streams) for at in (1, 3))
    if left[0] == right[0]:
        name = streams[left[0]].name
        raise InvalidJoin(
            f"on= has {text.strip()!r}, which connects {name} with itself; filter such rows before the "
            f"join, or declare {name} twice under two names to join it with itself"
        )
    return left, right


def _input_column(text: str, stream: str, column: str, streams: Sequence[Stream]) -> InputColumn:
    names = [one.name for one in streams]
    column = column[1:-1].replace("``", "`") if column.startswith("`") else column
    if stream not in names:
        raise InvalidJoin(f"on= has {text.strip()!r}, but no stream {stream!r}; there are {', '.join(names)}")
    number = names.index(stream)
    own = streams[number]
    if column not in own.schema.names:
        raise InvalidJoin(
            f"on= has {text.strip()!r}, but {stream} has no column {column!r}; "
            f"it has {', '.join(own.schema.names)}"
        )
    if column in own.hidden_columns:
        raise InvalidJoin(
            f"on= has {text.strip()!r}, but {stream}.{column} is a position or a mark, not data; "
            "join on another column, or on a copy of it"
        )
    return number, column


def _classes(
    edges: Sequence[tuple[InputColumn, InputColumn]], streams: Sequence[Stream]
) -> tuple[ColumnClass, ...]:
    """The columns that edges connect, over any number of steps, by their first column."""
    found: list[set[InputColumn]] = []
    for edge in edges:
        joined = set(edge).union(*(one for one in found if one & set(edge)))
        found = [one for one in found if not one & joined] + [joined]
    for members in found:
        numbers = Counter(number for number, _ in members)
        if len(numbers) < len(members):
            number = max(numbers, key=lambda each: numbers[each])
            twice = sorted(name for each, name in members if each == number)
            raise InvalidJoin(
                f"on= makes columns of one input equal ({streams[number].name}: {', '.join(twice)}); filter "
                "such rows before the join and name one of the columns, or leave an edge out"
            )
    return tuple(ColumnClass(dict(sorted(members))) for members in sorted(found, key=min))


def _check_class(streams: Sequence[Stream], one: ColumnClass) -> None:
    """Whether its columns have a common type."""
    own = [(streams[i], name) for i, name in one.columns.items()]
    common_type(
        [stream.name for stream, _ in own],
        [name for _, name in own],
        [stream.type_of(name) for stream, name in own],
    )


def _connected(graph: Graph, inputs: Sequence[int]) -> list[int]:
    """Those of the inputs that classes connect with the first of them, over these inputs only."""
    reached, before = {inputs[0]}, 0
    while len(reached) > before:
        before = len(reached)
        for one in graph.classes:
            if reached & one.columns.keys():
                reached |= one.columns.keys() & {*inputs}
    return sorted(reached)


def _check_connected(graph: Graph) -> None:
    names = [stream.name for stream in graph.streams]
    reached = _connected(graph, range(len(names)))
    here, apart = [names[i] for i in reached], [name for i, name in enumerate(names) if i not in reached]
    if apart:
        raise InvalidJoin(
            f"no edge connects {', '.join(apart)} with {', '.join(here)}, which would be a cross product; "
            f'add an edge such as "{here[0]}.… = {apart[0]}.…" to on=, or leave {", ".join(apart)} out'
        )


def check_connected_without(graph: Graph, number: int) -> None:
    """Refuse a left join whose other inputs have rows together only through the one that it keeps."""
    others = [i for i in range(len(graph.streams)) if i != number]
    names = {i: stream.name for i, stream in enumerate(graph.streams)}
    reached = _connected(graph, others)
    apart = [names[i] for i in others if i not in reached]
    if apart:
        kept, here = names[number], names[reached[0]]
        raise InvalidJoin(
            f"how='left' with on= is {kept} left join (all others joined), and only {kept} connects "
            f"{', '.join(apart)} with {', '.join(names[i] for i in reached)}; for ({kept} left join {here}) "
            f"left join {apart[0]} join two by two: sj.join({kept}, {here}, how='left'), and that, as "
            f"sj.stream(joined, …), with {apart[0]}; or add an edge between {here} and {apart[0]}"
        )
