"""Finished keys as punctuations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamjoin.punctuation import Constant, Punctuation


def punctuations_of(keys: Sequence[Any]) -> list[Punctuation]:
    """One punctuation per row of key columns. A nested key stands as its JSON text."""
    columns = [
        [json.dumps(value, default=str, sort_keys=True) for value in key.to_pylist()]
        if pa.types.is_nested(key.type)
        else key.to_pylist()
        for key in keys
    ]
    return [Punctuation(tuple(map(Constant, row))) for row in zip(*columns, strict=True)]
