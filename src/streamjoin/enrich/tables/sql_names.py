"""Names and queries quoted for SQL, as they stand after FROM; the same for all databases here."""

from __future__ import annotations

import re

from streamjoin.errors import InvalidJoin


def one_of(table: str | None, query: str | None, function: str) -> str:
    """The rows that a table's name or a query means, as they stand after FROM."""
    if (table is None) == (query is None):
        raise InvalidJoin(f"{function}(…) takes table= or query=, one of them")
    if table is not None:
        return quoted_name(table)
    return f"({str(query).strip().rstrip(';')}) AS q"


def quoted_name(name: str) -> str:
    """A table's name, quoted for SQL; a part that is quoted already stays.

    >>> quoted_name("shop.my customers"), quoted_name('"a.b".c')
    ('"shop"."my customers"', '"a.b"."c"')
    """
    parts = re.findall(r'"(?:[^"]|"")*"(?=\.|$)|[^.]+', name)
    return ".".join(p if len(p) > 1 and p[0] == p[-1] == '"' else quoted_part(p) for p in parts)


def quoted_part(name: str) -> str:
    """One name, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'
