"""Append-only results: a DataFrame that refuses every output mode but append.

A result, once emitted, never changes, so append is the only meaningful mode. Spark would accept `update` for
this join and silently do the same as in append mode. Classic and Connect have classes of their own, so what
refuses is made from the class of the DataFrame at hand.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from streamjoin.errors import InvalidJoin

_CLASSES: dict[type, Any] = {}  # what was made of Spark's


def append_only(frame: Any) -> DataFrame:
    """The same DataFrame; written directly, it refuses other output modes."""
    kind = _CLASSES.setdefault(type(frame), _results(type(frame)))
    results: DataFrame = object.__new__(kind)
    results.__dict__.update(frame.__dict__)
    return results


def _results(frame: Any) -> Any:
    def write_stream(self: Any) -> Any:
        writer = frame.writeStream.fget(self)
        writer.__class__ = _CLASSES.setdefault(type(writer), _writer(type(writer)))
        return writer

    return type("Results", (frame,), {"writeStream": property(write_stream), "__module__": frame.__module__})


def _writer(writer: Any) -> Any:
    def output_mode(self: Any, outputMode: str) -> Any:
        if str(outputMode).lower() != "append":
            raise InvalidJoin(
                f"output mode {outputMode!r}: a join's result never changes once it is emitted, "
                "so it is written with outputMode('append') only; aggregate it first, or leave the mode out"
            )
        return writer.outputMode(self, outputMode)

    return type("AppendOnly", (writer,), {"outputMode": output_mode, "__module__": writer.__module__})
