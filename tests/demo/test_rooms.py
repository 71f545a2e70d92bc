"""The rooms demo: both joins give the batch join's answer, and its check finds what is wrong."""

import pytest

from streamjoin.demo.generators.rooms import VALUES, RoomStreams
from streamjoin.demo.rooms import batch_join, check_answer, rooms_join, run_local
from streamjoin.errors import InvariantBroken

STREAMS = RoomStreams(seed=2, rooms=8, hours=2)


def test_ends_of_minutes_and_the_window_let_go_of_what_another_join_keeps() -> None:
    ticks: list[int] = []
    knowing, ignorant = run_local(STREAMS, 10, ticks.append)
    expected = batch_join(STREAMS)
    assert len(expected) > 300
    for watched in (knowing, ignorant):
        check_answer(watched, expected)
    assert ticks == list(range(1, 13))
    readings = sum(knowing.counted[f"{name}_rows"] for name in VALUES)
    assert ignorant.state_rows[-1] == readings > 30 * max(knowing.state_rows[3:])
    assert max(knowing.closed_keys) < 200  # of 960 minutes that were over for one sensor first
    for why in ("dropped", "purged", "invalidated"):
        assert sum(knowing.counted[f"{name}_{why}"] for name in VALUES) > 0
    violations = ("late", "after_punctuation", "null_time")
    assert all(knowing.counted[f"{name}_{why}"] == 0 for name in VALUES for why in violations)


def test_the_state_is_bounded() -> None:
    assert "NOT BOUNDED" not in rooms_join().explain()


def test_a_wrong_answer_is_found() -> None:
    knowing, _ = run_local(STREAMS, 60, lambda _: None)
    with pytest.raises(InvariantBroken, match="differ from the batch join"):
        check_answer(knowing, batch_join(STREAMS).slice(1))
