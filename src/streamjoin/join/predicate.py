"""Predicates: conditions on the joined row, beside equal keys and windows (`where=`).

A condition is the AND of several. One that names columns of one input only is tested when a tuple of it
arrives: a tuple that fails it can match nothing and is not stored; if its input is preserved it is emitted
padded at once. Matched combinations are tested for what is left.
"""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, Mask
from streamjoin.errors import BadInput, InvalidJoin

_ROW = "\0row"  # the number of a row while rows are filtered; no column has such a name


@dataclass(frozen=True)
class Predicate:
    """A pyarrow expression over the columns of a joined row; null counts as false, as in SQL."""

    expression: Any
    joined: pa.Schema

    def __post_init__(self) -> None:
        try:
            self.joined.empty_table().filter(self.expression)
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            reason = str(error).partition(" in ")[0]
            raise InvalidJoin(
                f"where={self.expression} cannot be tested on a joined row ({reason}); give a pyarrow "
                f"expression over {', '.join(self.joined.names)}"
            ) from error

    def passing(self, rows: pa.RecordBatch) -> Ints:
        """The numbers of the rows for which it holds, ascending."""
        table = pa.Table.from_batches([rows], self.joined)
        numbered = table.append_column(_ROW, pa.array(np.arange(len(table))))
        try:
            found = numbered.filter(self.expression)
        except pa.ArrowException as error:
            raise BadInput(
                f"where={self.expression} failed on a joined row ({error}); give a condition that every row "
                "allows to test, or correct the data"
            ) from error
        return np.sort(found.column(_ROW).to_numpy())

    @property
    def text(self) -> str:
        """The condition in words that tell it from any other; long lists are shortened, so with a digest."""
        text = str(self.expression)
        if "..." not in text:
            return text
        return f"{text} ({hashlib.blake2b(pickle.dumps(self.expression), digest_size=8).hexdigest()})"


@dataclass(frozen=True)
class Where:
    """The condition of a join: as a whole, and as it is tested.

    `alone` has for each input what its own tuples are tested for; `joined` is the rest. None: nothing.
    """

    whole: Predicate
    says: str  # as it was given
    alone: tuple[Predicate | None, ...]
    joined: Predicate | None
    own_keys: bool = False  # the columns of an input begin with its key
    columns: tuple[str, ...] = ()  # that it names, of the joined row

    def failing(self, number: int, rows: Batch) -> Mask | None:
        """Which tuples of an input can match nothing; None where none is tested."""
        own = self.alone[number]
        if own is None:
            return None
        failing: Mask = np.ones(len(rows), np.bool_)
        own_keys = rows.keys if self.own_keys else ()
        columns = pa.RecordBatch.from_arrays([*rows.keys, *own_keys, *rows.payload], schema=own.joined)
        failing[own.passing(columns)] = False
        return failing
