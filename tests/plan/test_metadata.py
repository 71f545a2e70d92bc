"""Metadata by the dimensions of MJoin's figure 5."""

from __future__ import annotations

import json

import streamjoin as sj
from tests.tables import stream


def test_the_examples_of_the_paper() -> None:
    """A window is of the query, a unique key of the schema, both static; a punctuation is of an instance and
    known when it comes."""
    timed = {"time": "t", "lateness": "0 seconds"}
    news = stream("news", "k t:time", unique=True, window="1 hour", **timed)
    access = stream("access", "k t:time end:bool", punctuation=sj.marked("end"), **timed)
    joined = sj.join(news, access)
    found = {
        (one["input"], one["says"].split(" ")[0]): (one["granularity"], one["time"], one["scope"])
        for one in json.loads(joined.explain(format="json"))["metadata"]
    }
    assert found["news", "window"] == ("query", "static", "global")
    assert found["news", "one"] == ("schema", "static", "global")
    assert found["access", "punctuations:"] == ("instance", "runtime", "global")
    assert found["access", "watermark"] == ("instance", "runtime", "global")
    assert found[None, "rates,"] == ("schema", "runtime", "local")
    assert "  news: one tuple per key (schema, static, global)" in joined.explain()


def test_what_holds_within_a_partition_is_local() -> None:
    by_partition = stream("a", "k p n", arrival=sj.ordered(), sequence=["p", "n"])
    marks = sj.marked("end", partitions=3)
    partial = stream("b", "k p n end:bool", punctuation=marks, sequence=["p", "n"])
    lines = sj.join(by_partition, partial).explain()
    assert "a: ordered arrival in each partition (schema, static, local)" in lines
    assert "b: punctuations, each of one partition until all have sent it: " in lines
    assert "(instance, runtime, local)" in lines
