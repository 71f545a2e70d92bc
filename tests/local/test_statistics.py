"""The statistics gatherer of a local run."""

from __future__ import annotations

from pathlib import Path

import pytest

import streamjoin as sj
from tests.tables import Story, stream


def news() -> sj.Joined:
    return sj.join(
        stream("news", "k x", unique=True), stream("access", "k y end:bool", punctuation=sj.marked("end"))
    )


def test_a_sample_at_the_start_and_after_every_so_many_steps() -> None:
    story = Story(news())
    gathered = story.run.gather(every=3)
    for key in range(7):
        story.push("news", f"k x\n{key} {key}")
    story.push("access", "k y end\n0 5 false\n0 - true")
    story.run.idle()
    table = gathered.table().to_pydict()
    assert table["step"] == [0, 3, 6, 9]
    assert table["news_state_rows"] == [0, 3, 6, 6]
    assert table["results"] == [0, 0, 0, 1]
    assert table["propagated_keys"] == [0, 0, 0, 1]
    assert table["access_not_stored"][-1] == 1
    assert table["seconds"] == sorted(table["seconds"])


def test_a_picture_of_it(tmp_path: Path) -> None:
    story = Story(news())
    gathered = story.run.gather()
    for key in range(4):
        story.push("news", f"k x\n{key} {key}")
    assert set(gathered.chart().lines) == {"news_state_rows", "access_state_rows"}
    assert gathered.chart("nbytes").lines["nbytes"][0] == [0, 1, 2, 3, 4]
    assert gathered.png(tmp_path / "state.png").stat().st_size > 1000
    with pytest.raises(sj.InvalidJoin, match="no statistics are called size; there are step, seconds"):
        gathered.chart("size")


def test_mistakes() -> None:
    with pytest.raises(sj.InvalidJoin, match=r"gather\(every=0\); give the number of steps"):
        news().local().gather(every=0)
