"""docs/metrics.md has every metric name that the code emits, and no other."""

import re
from pathlib import Path

import pyarrow as pa

import streamjoin as sj
from streamjoin.spark import enrich_bucket, join_bucket

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def documented(heading: str) -> set[str]:
    """The names in the first column of the tables below a heading."""
    section = re.split(rf"^## {heading}.*$", PAGE, flags=re.MULTILINE)[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(?:<stream>_)?(\w+)` \|", section, re.MULTILINE))


def unprefixed(names: list[str], *inputs: str) -> set[str]:
    return {re.sub(rf"^({'|'.join(inputs)})_", "", name) for name in names}


def test_every_metric_is_documented() -> None:
    both = documented("Both")
    a, b = (sj.stream(pa.schema({"k": pa.int64()}), name=name, key="k", unique=True) for name in "ab")
    joined = sj.join(a, b)
    spec = joined.plan.spec
    emitted = unprefixed([*join_bucket.metric_names(spec), *join_bucket.monitor_names(spec)], "a", "b")
    assert emitted == documented("Stream join") | both
    assert unprefixed(list(joined.local().counters()), "a", "b") <= documented("Stream join")
    assert unprefixed(enrich_bucket.metric_names("a"), "a") == documented("Enrich join") | both
