"""Declaration of a table: the big, slowly changing relation that enriches a stream.

A `Table` is a frozen value, checked when it is made. It says where the rows come from, how much memory
the join may take, and what is done with a stream row that finds none. Nothing here touches data.

Worked case: `columns=("name", "_version")` of customers(id, name, city) with key id gives the result
`name` and `customers_version`, the version by which each row was joined.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa

from streamjoin.declare.short_lists import few
from streamjoin.errors import InvalidJoin

How: TypeAlias = Literal["inner", "left"]
VERSION = "_version"  # among `columns`: the version by which a row was joined


@dataclass(frozen=True, repr=False)
class Table:
    """A declared table; `version` labels its present content, None: the source's fingerprint does."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    memory_bytes: int
    cycle_batches: int = 1
    columns: tuple[str, ...] | None = None
    version: str | None = None
    wait_us: int | None = None
    how: How = "inner"
    source: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        name: Any = self.name
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise InvalidJoin(
                f"table name {name!r}; give a name of letters, digits and _ that starts with a letter"
            )
        self._check_columns()
        if self.how not in get_args(How):
            raise InvalidJoin(f"{self._said}: how={self.how!r}; give 'inner' or 'left'")
        cycle: Any = self.cycle_batches
        if not isinstance(cycle, int) or isinstance(cycle, bool) or cycle < 1:
            raise InvalidJoin(
                f"{self._said}: cycle_batches={cycle!r}; give a whole number of 1 or more: in how many "
                "batches each row is answered"
            )
        label: Any = self.version
        if label is not None and not (isinstance(label, str) and label.strip()):
            raise InvalidJoin(
                f"{self._said}: version={label!r}; give a label of its present content, such as "
                '"2026-11-16", or leave it out'
            )
        if self.wait_us == 0:
            raise InvalidJoin(f"{self._said} has a wait of zero; give a positive duration or none")

    def __repr__(self) -> str:
        kept = ", keeps rows without a match" if self.how == "left" else ""
        return f"<Table {self.name}({few(self.schema.names)}): key {', '.join(self.key)}{kept}>"

    @property
    def _said(self) -> str:
        return f"table {self.name!r}"

    def _check_columns(self) -> None:
        names = self.schema.names
        if not self.key:
            raise InvalidJoin(f"{self._said} has no key; name at least one key column")
        for what, given in (("the table", names), ("key", self.key), ("columns", self.columns or ())):
            repeated = sorted(name for name, count in Counter(given).items() if count > 1)
            if repeated:
                raise InvalidJoin(
                    f"{self._said}: {what} names {', '.join(map(repr, repeated))} more than once; "
                    "name each column once"
                )
        wanted = [("key", name) for name in self.key]
        wanted += [("columns", name) for name in self.columns or () if name != VERSION]
        for what, column in wanted:
            if column not in names:
                raise InvalidJoin(
                    f"{self._said}: {what} column {column!r} does not exist; "
                    f"its columns are {', '.join(names) or 'none'}"
                )

    def type_of(self, column: str) -> pa.DataType:
        """The Arrow type of one column."""
        return self.schema.field(column).type

    @property
    def emits_version(self) -> bool:
        """Whether results have a column with the version by which they were joined.

        A table that has a column of that name means its own.
        """
        return VERSION in (self.columns or ()) and VERSION not in self.schema.names

    @property
    def payload(self) -> tuple[str, ...]:
        """The columns of a result that it brings beside the key, in declared order."""
        chosen = self.schema.names if self.columns is None else self.columns
        left_out = {*self.key, VERSION} if self.emits_version else {*self.key}
        return tuple(name for name in chosen if name not in left_out)
