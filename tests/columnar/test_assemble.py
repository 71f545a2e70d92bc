"""Results as columns: the key once, from the first component, then each component's own columns."""

import numpy as np
import pyarrow as pa

from streamjoin.columnar.assemble import assemble
from streamjoin.columnar.batch import Layout
from streamjoin.columnar.keys import hash_keys


def batch(keys, *payload, timed=False):
    """Key columns and payload columns as given; hash and time are not what this is about."""
    layout = Layout(tuple(key.type for key in keys), timed, tuple(column.type for column in payload))
    time = [pa.array(np.zeros(len(keys[0]), np.int64))] if timed else []
    return layout.batch([pa.array(hash_keys(keys)), *time, *keys, *payload])


def at(*rows):
    return np.array(rows, np.int64)


def test_rows_are_gathered_by_number():
    news = batch([pa.array([79, 80])], pa.array(["Cashless", "Storm"]))
    access = batch([pa.array([79, 79, 80])], pa.array(["a", "b", "c"]), pa.array([1, None, 3]), timed=True)
    schema = pa.schema({"sno": pa.int64(), "title": pa.string(), "ip": pa.string(), "n": pa.int64()})
    result = assemble([(news, at(0, 0, 1)), (access, at(1, 0, 2))], schema)
    assert result.to_pylist() == [
        {"sno": 79, "title": "Cashless", "ip": "b", "n": None},
        {"sno": 79, "title": "Cashless", "ip": "a", "n": 1},
        {"sno": 80, "title": "Storm", "ip": "c", "n": 3},
    ]


def test_three_components_and_a_composite_key():
    keys = [pa.array([1]), pa.array(["x"])]
    parts = [batch(keys, pa.array([value])) for value in (10, 20, 30)]
    schema = pa.schema(
        [("a", pa.int64()), ("b", pa.string()), ("p", pa.int64()), ("q", pa.int64()), ("r", pa.int64())]
    )
    result = assemble([(part, at(0, 0)) for part in parts], schema)
    assert result.to_pydict() == {"a": [1, 1], "b": ["x"] * 2, "p": [10] * 2, "q": [20] * 2, "r": [30] * 2}


def test_components_without_columns_of_their_own():
    part = batch([pa.array([1, 2])])
    result = assemble([(part, at(1)), (part, at(1))], pa.schema({"k": pa.int64()}))
    assert result.to_pydict() == {"k": [2]}


def test_no_results_have_the_columns_all_the_same():
    part = batch([pa.array([1])], pa.array(["x"]))
    schema = pa.schema([("k", pa.int64()), ("x", pa.string()), ("y", pa.string())])
    result = assemble([(part, at()), (part, at())], schema)
    assert result.num_rows == 0
    assert result.schema == schema
