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
            self.passing(pa.RecordBatch.from_pylist([], schema=self.joined))
        except (pa.ArrowException, TypeError, ValueError) as error:
            reason = str(error).partition(" in ")[0]
            raise InvalidJoin(
                f"where={self.expression} cannot be tested on a joined row ({reason}); give a pyarrow "
                f"expression over {', '.join(self.joined.names)}"
            ) from error

    def passing(self, rows: pa.RecordBatch) -> Ints:
        """The numbers of the rows for which it holds, ascending."""
        table = pa.Table.from_batches([rows], self.joined)
        numbered = table.append_column(_ROW, pa.array(np.arange(len(table))))
        return np.sort(numbered.filter(self.expression).column(_ROW).to_numpy())
