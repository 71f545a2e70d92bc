"""A condition on the joined row, beside equal keys and windows: `where=`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.batch import Ints
from streamjoin.errors import InvalidJoin

_ROW = "_row"  # the number of a row while rows are filtered


@dataclass(frozen=True)
class Predicate:
    """A pyarrow expression over the columns of a joined row; null counts as false, as in SQL."""

    expression: Any
    joined: pa.Schema

    def __post_init__(self) -> None:
        try:
            self.passing(self.joined.empty_table().to_batches()[0:1] or self._nothing())
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidJoin(
                f"where={self.expression} cannot be tested on a joined row ({error}); give a pyarrow "
                f"expression over {', '.join(self.joined.names)}"
            ) from error

    def _nothing(self) -> list[pa.RecordBatch]:
        return [pa.RecordBatch.from_pylist([], schema=self.joined)]

    def passing(self, batches: list[pa.RecordBatch]) -> Ints:
        """The numbers of the rows for which it holds, ascending."""
        table = pa.Table.from_batches(batches, self.joined)
        numbered = table.append_column(_ROW, pa.array(np.arange(len(table))))
        return np.sort(numbered.filter(self.expression).column(_ROW).to_numpy())
