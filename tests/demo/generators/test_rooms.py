"""The building's streams: the same from the same seed, each keeps what the demo declares of it."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamjoin.demo.generators.rooms import DELAYS_US, MINUTE_US, VALUES, RoomStreams, room_schema
from streamjoin.errors import InvalidJoin

STREAMS = RoomStreams(seed=3)

any_streams = st.builds(
    RoomStreams,
    seed=st.integers(0, 2**40),
    rooms=st.integers(1, 12),
    hours=st.sampled_from([1 / 60, 0.33, 2.0]),
    lights_per_minute=st.sampled_from([0, 0.3, 4]),
    lost_share=st.sampled_from([0.0, 0.3, 1.0]),
    silent_share=st.sampled_from([0.0, 0.5, 1.0]),
)


def split(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    return table.filter(pc.invert(table["is_end"])), table.filter(table["is_end"])


def micros(column: pa.ChunkedArray) -> np.ndarray:
    return column.cast(pa.int64()).to_numpy()


def test_the_same_seed_gives_the_same_streams_and_another_seed_others() -> None:
    for name in VALUES:
        assert RoomStreams(seed=3).table(name).equals(STREAMS.table(name))
        assert not RoomStreams(seed=4).table(name).equals(STREAMS.table(name))


@settings(max_examples=30, deadline=None)
@given(any_streams)
def test_no_row_is_late_and_none_follows_the_end_of_its_minute(streams: RoomStreams) -> None:
    for name in VALUES:
        table = streams.table(name)
        assert table.schema == room_schema(name)
        data, ends = split(table)
        at, minute = micros(data["at"]), micros(data["minute"])
        assert np.all((minute <= at) & (at < minute + MINUTE_US))
        assert np.all(at >= np.maximum.accumulate(at) - DELAYS_US[name])
        assert ends.group_by(["room", "minute"]).aggregate([]).num_rows == len(ends)
        over = set()
        for row in table.select(["room", "minute", "is_end"]).to_pylist():
            key = row["room"], row["minute"]
            assert key not in over
            if row["is_end"]:
                over.add(key)


@settings(max_examples=15, deadline=None)
@given(any_streams, st.sampled_from([0.7, 5.0, 200.0]))
def test_batches_are_the_streams_cut_at_the_same_moments(streams: RoomStreams, minutes: float) -> None:
    pieces = list(streams.batches(minutes))
    assert len(pieces) == len(streams.cuts_us(minutes))
    for name in VALUES:
        assert pa.concat_tables([piece[name] for piece in pieces]).equals(streams.table(name))


def test_rates_and_bursts_are_those_the_file_tells_of() -> None:
    data = {name: split(STREAMS.table(name))[0] for name in VALUES}
    assert {name: round(len(table) / 14_400, 1) for name, table in data.items()} == {
        "temperature": 1.0,
        "humidity": 0.5,
        "light": 2.5,
    }
    keys = data["temperature"].group_by(["room", "minute"]).aggregate([([], "count_all")])
    assert pc.max(keys["count_all"]).as_py() == 1
    lights = np.sort(np.unique(micros(data["light"]["minute"]), return_counts=True)[1])
    assert lights[-72:].sum() > 0.6 * lights.sum()  # the busiest fifth of 360 minutes
    humid = np.unique(micros(data["humidity"]["minute"]), return_counts=True)[1]
    assert humid.max() < 2 * np.median(humid)


def test_a_silent_sensor_ends_its_minutes_when_it_is_back() -> None:
    always, silent = (RoomStreams(seed=5, silent_share=share, hours=4) for share in (0, 1))
    assert len(split(silent.table("humidity"))[0]) < 0.9 * len(split(always.table("humidity"))[0])
    waits = []
    for streams in (always, silent):
        pieces = [split(piece["humidity"])[1] for piece in streams.batches(1)]
        start = min(micros(ends["minute"]).min() for ends in pieces if len(ends))
        after = [n * MINUTE_US - (micros(ends["minute"]) - start) for n, ends in enumerate(pieces)]
        waits.append(np.concatenate(after).max() / MINUTE_US)
    assert waits[0] < 6
    assert 30 < waits[1] < 96


@pytest.mark.parametrize("wrong", [{"rooms": 0}, {"lost_share": 1.5}, {"hours": 0}, {"seed": -1}])
def test_nonsense_is_refused(wrong: dict) -> None:
    with pytest.raises(InvalidJoin, match=next(iter(wrong))):
        RoomStreams(**({"seed": 1} | wrong))
    with pytest.raises(InvalidJoin, match="Give more than 0"):
        next(STREAMS.batches(0))
