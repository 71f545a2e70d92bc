"""The rooms demo: both joins give the batch join's answer, and its check finds what is wrong."""

import pytest

from streamjoin.demo.generators.rooms import VALUES, RoomStreams
from streamjoin.demo.rooms import RoomsDemo, batch_join, rooms_join
from streamjoin.demo.runner import check_rows
from streamjoin.errors import InvariantBroken

STREAMS = RoomStreams(seed=2, rooms=8, hours=2)


def test_ends_of_minutes_and_the_window_evict_what_another_join_keeps() -> None:
    ticks: list[int] = []
    demo = RoomsDemo(STREAMS, 10)
    declared, undeclared = demo.run_local(ticks.append)
    expected = batch_join(STREAMS)
    assert len(expected) > 300
    demo.check((declared, undeclared))
    assert ticks == list(range(1, 13))
    readings = sum(declared.counted[f"{name}_rows"] for name in VALUES)
    assert undeclared.state_rows[-1] == readings > 30 * max(declared.state_rows[3:])
    assert max(declared.closed_keys) < 200  # of 960 minutes that were over for one sensor first
    for why in ("not_stored", "purged", "invalidated"):
        assert sum(declared.counted[f"{name}_{why}"] for name in VALUES) > 0
    violations = ("late", "after_punctuation", "null_time")
    assert all(declared.counted[f"{name}_{why}"] == 0 for name in VALUES for why in violations)


def test_the_state_is_bounded() -> None:
    assert "NOT BOUNDED" not in rooms_join().explain()


def test_a_wrong_answer_is_found() -> None:
    declared, _ = RoomsDemo(STREAMS, 60).run_local(lambda _: None)
    with pytest.raises(InvariantBroken, match="differ from the batch join"):
        check_rows("it", declared.rows, batch_join(STREAMS).slice(1), ["room", "minute"])
