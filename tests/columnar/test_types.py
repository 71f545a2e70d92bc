"""The one type to which key columns are widened, as a table."""

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.columnar.types import common_type, plain, widen

DEC = pa.decimal128
TS = pa.timestamp

WIDENED = [
    # one                     other                     both
    (pa.int8(), pa.int8(), pa.int8()),
    (pa.int8(), pa.int16(), pa.int16()),
    (pa.int32(), pa.int64(), pa.int64()),
    (pa.uint8(), pa.int8(), pa.int16()),
    (pa.uint16(), pa.int32(), pa.int32()),
    (pa.uint32(), pa.int32(), pa.int64()),
    (pa.uint64(), pa.int64(), DEC(20, 0)),
    (pa.uint64(), pa.uint64(), pa.uint64()),
    (pa.int8(), DEC(5, 2), DEC(5, 2)),  # 3 digits before the point, 2 behind
    (pa.int32(), DEC(5, 2), DEC(12, 2)),  # 10 + 2
    (pa.int64(), DEC(5, 2), DEC(21, 2)),  # 19 + 2
    (pa.uint64(), DEC(20, 0), DEC(20, 0)),
    (DEC(10, 2), DEC(8, 4), DEC(12, 4)),  # 8 before, 4 behind
    (pa.int64(), DEC(38, 20), None),  # 19 + 20 digits are more than 38
    (pa.float32(), pa.float64(), pa.float64()),
    (pa.int32(), pa.float32(), pa.float64()),
    (DEC(10, 2), pa.float32(), pa.float64()),
    (pa.date32(), pa.date64(), pa.date32()),
    (pa.date32(), TS("us"), TS("us")),
    (pa.date32(), TS("us", "UTC"), TS("us", "UTC")),  # midnight in that zone
    (TS("s"), TS("us"), TS("us")),
    (TS("ms", "UTC"), TS("us", "Europe/Berlin"), TS("us", "UTC")),
    (TS("us"), TS("us", "UTC"), None),  # which zone?
    (pa.string(), pa.string(), pa.string()),
    (pa.string(), pa.int64(), None),
    (pa.bool_(), pa.int64(), None),
    (pa.bool_(), pa.bool_(), pa.bool_()),
    (pa.binary(), pa.string(), None),
    (pa.date32(), pa.int32(), None),
    (pa.time64("us"), pa.date32(), None),
    (
        pa.struct([("x", pa.int32()), ("y", pa.string())]),
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        pa.struct([("x", pa.int64()), ("y", pa.string())]),
    ),
    (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.string())]), None),
    (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int32()), ("y", pa.int32())]), None),
]


@pytest.mark.parametrize(("one", "other", "both"), WIDENED, ids=str)
def test_widening(one, other, both):
    assert widen(one, other) == both
    swapped = widen(other, one)
    if both is None or pa.types.is_struct(both) or pa.types.is_timestamp(both):
        assert (swapped is None) == (both is None)  # names and zone are the first input's
    else:
        assert swapped == both


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.int64(), pa.int64()),
    ],
    ids=str,
)
def test_the_form_that_is_stored(given, stored):
    assert plain(given) == stored


def test_all_inputs_meet_in_one_type():
    assert common_type(["a", "b", "c"], ["k"] * 3, [pa.int8(), pa.int32(), DEC(4, 1)]) == DEC(11, 1)
    assert common_type(["a", "b"], ["k"] * 2, [pa.large_string(), pa.string_view()]) == pa.string()


def test_types_without_a_common_one_are_refused_with_all_of_them():
    with pytest.raises(
        sj.InvalidJoin, match=r"\(news\.sno int64, access\.item string\); cast one of them first"
    ):
        common_type(["news", "access"], ["sno", "item"], [pa.int64(), pa.string()])


@pytest.mark.parametrize(
    ("one", "other", "values"),
    [
        (pa.int8(), pa.int64(), [[3], [3]]),
        (pa.uint64(), pa.int64(), [[3], [3]]),
        (pa.int64(), DEC(6, 2), [[3], ["3.00"]]),
        (pa.int32(), pa.float64(), [[3], [3.0]]),
        (pa.large_string(), pa.dictionary(pa.int8(), pa.string()), [["x"], ["x"]]),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")
def test_keys_are_cast_before_they_are_hashed(one, other, values):
    """The same value under two types is one key."""
    left = sj.stream(pa.schema({"k": one}), name="left", key="k")
    right = sj.stream(pa.schema({"k": other}), name="right", key="k")
    run = sj.join(left, right).local()
    run.push("left", pa.table({"k": pa.array(values[0]).cast(one)}))
    cast = pa.array(values[1])
    cast = cast.dictionary_encode().cast(other) if pa.types.is_dictionary(other) else cast.cast(other)
    assert run.push("right", pa.table({"k": cast})).num_rows == 1
