"""Trees of pyarrow expressions: which columns an expression names, and the conditions it is the AND of.

pyarrow shows no tree, but an expression can be pickled, and what is pickled is a record batch whose schema
lists the tree in prefix order: `call less`, `field_ref t`, `literal 0`, `end less`; literals and options are
columns of the batch. So a part of the tree is a slice of that list with the same batch. The list is read from
the schema's text, as pyarrow's dictionary of metadata loses repeated names, and is trusted only if the whole
expression comes back from it; otherwise an expression has no tree, and stays whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_METADATA = "-- schema metadata --\n"
_AND = ("and_kleene", "and")
Pair = tuple[str, str]


@dataclass(frozen=True)
class Node:
    """A call of a function, a column (`field`), a field of a struct (`nested`) or a literal."""

    kind: str
    name: str
    args: tuple[Node, ...] = ()
    value: Any = None  # of a literal, as a pyarrow scalar
    pairs: tuple[Pair, ...] = ()

    def columns(self) -> Iterator[str]:
        """The columns that it names, a struct's by the struct's name."""
        if self.kind in ("field", "nested"):
            yield self.name
        for one in self.args:
            yield from one.columns()

    def conjuncts(self) -> Iterator[Node]:
        """The conditions whose AND it is, in order."""
        if self.kind == "call" and self.name in _AND:
            for one in self.args:
                yield from one.conjuncts()
        else:
            yield self


@dataclass(frozen=True)
class Tree:
    """An expression taken apart; `part` makes an expression of one of its nodes."""

    root: Node
    batch: pa.RecordBatch
    rebuild: Any

    def part(self, node: Node) -> Any:
        """The expression of a node."""
        schema = self.batch.schema.with_metadata(pa.KeyValueMetadata(list(node.pairs)))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write(pa.RecordBatch.from_arrays(self.batch.columns, schema=schema))
        return self.rebuild(sink.getvalue())


def tree_of(expression: Any) -> Tree | None:
    """The tree of a pyarrow expression; None where it cannot be read."""
    try:
        rebuild, (buffer,) = expression.__reduce__()
        batch = pa.ipc.open_file(buffer).get_batch(0)
        pairs = _pairs(batch.schema)
        root, stop = _node(pairs, 0, batch)
        tree = Tree(root, batch, rebuild)
        whole = stop == len(pairs) and tree.part(root).equals(expression)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, pa.ArrowException):
        return None
    return tree if whole else None


def _pairs(schema: pa.Schema) -> list[Pair]:
    lines = schema.to_string(truncate_metadata=False).partition(_METADATA)[2].split("\n")
    pairs = []
    for line in lines:
        key, _, value = line.partition(": ")
        pairs.append((key, value[1:-1]))
    return pairs


def _node(pairs: Sequence[Pair], at: int, batch: pa.RecordBatch) -> tuple[Node, int]:
    """The node that begins at a place of the list, and where the next one begins."""
    kind, name = pairs[at]
    if kind == "field_ref":
        return Node("field", name, pairs=(pairs[at],)), at + 1
    if kind == "literal":
        value = batch.column(int(name))[0]
        return Node("literal", name, value=value, pairs=(pairs[at],)), at + 1
    if kind == "nested_field_ref":
        stop = at + 1 + int(name)
        return Node("nested", pairs[at + 1][1], pairs=tuple(pairs[at:stop])), stop
    if kind != "call":
        raise ValueError(kind)
    args, start = [], at
    at += 1
    while pairs[at][0] not in ("end", "options"):
        one, at = _node(pairs, at, batch)
        args.append(one)
    at += 2 if pairs[at][0] == "options" else 1
    return Node("call", name, tuple(args), pairs=tuple(pairs[start:at])), at
