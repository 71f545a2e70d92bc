"""Predicate: a condition on the joined row, beside equal keys and windows (`where=`)."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Ints
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
