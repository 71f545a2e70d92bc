"""Notices: what a run says of rows that leave the join, in the log `streamjoin` and as a warning.

A dropped violation is counted and emitted, and who looks at neither would not know. So the first one of
each input and reason is logged, then those that make ten, a hundred, a thousand: a stream that is always late
gives eight lines in ten million rows. A control row with data is warned about once.

Locally the numbers are those of a run; on Spark those of a worker process, over all its buckets.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from streamjoin.declare.punctuation_source import PunctuationSource
from streamjoin.join.admission import Reason, Violation
from streamjoin.join.outputs import Output
from streamjoin.join.spec import JoinSpec

LOG = logging.getLogger("streamjoin")

SAID: dict[Reason, str] = {
    "late": "came later than the declared lateness allows",
    "duplicate_key": "repeat a key that is declared unique",
    "after_punctuation": "came after a punctuation that closed their key",
    "null_time": "have no event time",
    "null_punctuation": "are punctuations with a null key, which close nothing",
}


class DataInControlRow(UserWarning):
    """Warning: a row that is marked as a punctuation has data, which is not joined.

    >>> import warnings
    >>> import pyarrow as pa
    >>> import streamjoin as sj
    >>> columns = pa.schema({"id": pa.int64(), "qty": pa.int64(), "last": pa.bool_()})
    >>> lines = sj.stream(columns, name="lines", key="id", punctuation=sj.marked("last"))
    >>> orders = sj.stream(pa.schema({"id": pa.int64()}), name="orders", key="id", unique=True)
    >>> run = sj.join(orders, lines).local()
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     joined = run.push("lines", pa.table({"id": [1], "qty": [3], "last": [True]}))
    >>> found[0].category.__name__
    'DataInControlRow'
    """


def about_control_rows(stream: str, source: PunctuationSource) -> str:
    """What a control row with data may mean, and what to write."""
    return (
        f"stream {stream!r}: a row that is a punctuation by {source.declared} has data: such rows are "
        f"control rows, never joined. {source.instead}Else leave the data of punctuations null"
    )


class Notices:
    """What was said already, and how much of each subject there was."""

    def __init__(self) -> None:
        self._rows: Counter[tuple[str, ...]] = Counter()

    def first(self, *subject: str) -> bool:
        """Whether it is the first time that anything of this subject is seen."""
        self._rows[subject] += 1
        return self._rows[subject] == 1

    def watched(self, spec: JoinSpec, outputs: Iterable[Output]) -> Iterator[Output]:
        """The outputs of a batch; dropped violations among them are logged."""
        for output in outputs:
            if isinstance(output, Violation) and not output.kept:
                self._dropped(spec.name, spec.inputs[output.input].name, output.reason, len(output.rows))
            yield output

    def _dropped(self, join: str, stream: str, reason: Any, rows: int) -> None:
        before = self._rows[join, stream, reason]
        self._rows[join, stream, reason] = now = before + rows
        if before and len(str(now)) == len(str(before)):
            return
        LOG.warning(
            "join %r, stream %r: dropped rows that %s (%s), %s so far. They are counted, and emitted as "
            "violations; on_violation= says whether such rows are dropped, kept, or stop the join.",
            *(join, stream, SAID[reason], reason, f"{now:,}"),
        )
