"""State as bytes: what was written is read back; anything else is refused with a sentence."""

import mmap
import struct
from dataclasses import replace

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.columnar.batch import Layout
from streamjoin.state.codec import MANIFEST, RUN, SNAPSHOT, VERSION, decode, decode_run, encode, encode_run
from tests.data.make_golden import FILE, first_half, golden_join, second_half
from tests.tables import Story, sorted_batch, stream, unbounded_is_meant

# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("header", "parts"),
    [
        ({}, []),
        ({"n": 1, "deep": {"x": [None, 1 << 200, "é\n"]}}, []),
        ({"n": 1}, [b"abc"]),
        ({"n": 1}, [b"", b"x" * 63, b"y" * 64, b"z" * 65]),
    ],
)
def test_header_and_parts_come_back(header, parts):
    found, views = decode(RUN, encode(RUN, header, parts))
    assert found == header
    assert [bytes(view) for view in views] == parts


def test_parts_start_at_multiples_of_64():
    value = encode(RUN, {"n": 1}, [b"a" * 10, b"b" * 100, b"c"])
    assert [value.index(letter) % 64 for letter in (b"aaaaaaaaaa", b"bbbbbbbbbb", b"c\0")] == [0, 0, 0]


def test_parts_are_views_not_copies():
    value = bytearray(encode(RUN, {}, [b"abc"]))
    (view,) = decode(RUN, value)[1]
    value[value.index(b"abc")] = ord("x")
    assert bytes(view) == b"xbc"


def test_another_kind_is_refused():
    with pytest.raises(sj.StateFormatError, match=r"of kind b'SJRN', not b'SJMF'; is this the right file"):
        decode(MANIFEST, encode(RUN, {}))


@pytest.mark.parametrize("version", [0, VERSION + 1, 65535])
def test_another_version_is_refused_with_what_to_do(version):
    value = bytearray(encode(RUN, {"n": 1}))
    struct.pack_into("<H", value, 4, version)
    with pytest.raises(
        sj.StateFormatError,
        match=f"has format {version}, this version of streamjoin reads format {VERSION}; go on with the",
    ):
        decode(RUN, value)


def test_something_else_is_refused():
    for value in (b"PAR1" * 10, b"\0" * 100, b"{}" * 30):
        with pytest.raises(sj.StateFormatError, match="is this the right file or checkpoint"):
            decode(RUN, value)


# ---------------------------------------------------------------- runs


ROWS = sorted_batch([3, 1, 2, 2], times=[30, 10, 20, 21], payload=["c", None, "b", "é"])


def test_a_run_comes_back():
    assert decode_run(encode_run(ROWS), ROWS.layout).data.equals(ROWS.data)


def test_a_slice_is_stored_alone():
    part = sorted_batch(list(range(10_000))).slice(10, 2)
    assert len(encode_run(part)) < 2_000
    assert decode_run(encode_run(part), part.layout).data.equals(part.data)


def test_an_empty_run_comes_back():
    assert len(decode_run(encode_run(ROWS.layout.empty()), ROWS.layout)) == 0


def test_a_run_is_read_in_place_from_a_memory_map(tmp_path):
    path = tmp_path / "run"
    path.write_bytes(encode_run(ROWS))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        before = pa.total_allocated_bytes()
        found = decode_run(mapped, ROWS.layout)
        assert found.data.equals(ROWS.data)
        assert pa.total_allocated_bytes() - before < ROWS.nbytes
        del found


def test_a_run_of_other_columns_is_refused_with_both():
    with pytest.raises(
        sj.StateFormatError,
        match=r"h int64, t int64, k0 int64, p0 string, this join has h int64, k0 string; re",
    ):
        decode_run(encode_run(ROWS), Layout((pa.string(),)))


def test_a_run_with_another_number_of_rows_is_refused():
    _, (part,) = decode(RUN, encode_run(ROWS))
    with pytest.raises(sj.StateFormatError, match="another number of rows"):
        decode_run(encode(RUN, {"rows": 5}, [part]), ROWS.layout)


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF], ids=["lowest bit", "highest bit", "all bits"])
def test_every_single_corrupted_byte_is_found(flip):
    """Wherever it is: kind, version, flags, checksum, length, header, padding, parts."""
    value = encode(SNAPSHOT, {"n": [1, 2, 3]}, [b"abc", encode_run(ROWS)])
    missed = []
    for at in range(len(value)):
        damaged = bytearray(value)
        damaged[at] ^= flip
        try:
            decode(SNAPSHOT, bytes(damaged))
        except sj.StateFormatError:
            continue
        except Exception as error:  # noqa: BLE001 - any other error is a miss too
            missed.append((at, repr(error)))
        else:
            missed.append((at, "read"))
    assert missed == []


def test_a_cut_off_state_is_found_wherever_it_is_cut():
    value = encode(SNAPSHOT, {"n": [1, 2, 3]}, [b"abc", encode_run(ROWS)])
    for length in range(len(value)):
        with pytest.raises(sj.StateFormatError, match=r"cut off|damaged"):
            decode(SNAPSHOT, value[:length])


def test_bytes_behind_the_end_are_found():
    with pytest.raises(sj.StateFormatError, match="damaged"):
        decode(RUN, encode(RUN, {"n": 1}, [b"abc"]) + b"\0")


def test_swapped_parts_are_found():
    value = encode(RUN, {}, [b"a" * 64, b"b" * 64])
    with pytest.raises(
        sj.StateFormatError, match=r"damaged \(its checksum is wrong\); restore it from a backup"
    ):
        decode(RUN, value.replace(b"a" * 64, b"c" * 64))


# ---------------------------------------------------------------- a whole run


@pytest.fixture(scope="module")
def snapshot():
    run = Story(golden_join())
    first_half(run)
    return run.run.snapshot()


def test_every_corrupted_byte_of_a_snapshot_is_found(snapshot):
    """Every byte of the outer prefix, and a sample of the rest, which one checksum covers."""
    step = 37
    for at in [*range(16), *range(16, len(snapshot), step)]:
        damaged = bytearray(snapshot)
        damaged[at] ^= 0x10
        with pytest.raises(sj.StateFormatError):
            golden_join().local(snapshot=bytes(damaged))


def test_a_cut_off_snapshot_is_found(snapshot):
    for length in [*range(20), len(snapshot) // 2, len(snapshot) - 1]:
        with pytest.raises(sj.StateFormatError):
            golden_join().local(snapshot=snapshot[:length])


def test_what_is_no_snapshot_is_refused():
    for value in (b"", b"hello", encode_run(ROWS)):
        with pytest.raises(sj.StateFormatError):
            golden_join().local(snapshot=value)


# ---------------------------------------------------------------- the golden state


def test_the_golden_state_is_still_read_and_goes_on_as_it_would_have():
    straight = Story(golden_join())
    first_half(straight)
    told_before = straight.punctuations(), straight.violations()
    assert told_before == (["<2>", "<8>"], [])
    restored = Story(golden_join(), snapshot=FILE.read_bytes())
    assert restored.held() == straight.held()
    assert restored.state().closed_keys == straight.state().closed_keys
    assert restored.run.counters() == straight.run.counters()
    assert second_half(restored) == second_half(straight)
    assert restored.punctuations() == straight.punctuations()
    assert restored.violations() == straight.violations()
    assert restored.run.counters() == straight.run.counters()


def test_the_golden_state_gives_these_results():
    """In words of its own, should the story itself change."""
    run = Story(golden_join(), snapshot=FILE.read_bytes())
    assert run.held() == {"auction": 5, "bid": 2}
    assert second_half(run) == [
        [(4, 13, "jug", 60, 4.0), (5, 14, "mug", 61, 5.25)],
        [(7, 55, "pan", 14, 9.0), (7, 55, "pan", 40, 9.5)],
        [(3, 12, "cup", 70, 3.0)],
        [],
        [],
        [],
    ]
    assert run.violations() == [
        ("auction", "after_punctuation", 8, 58, "lid"),
        ("auction", "duplicate_key", 3, 57, "cup"),
    ]
    assert {"<1>", "<3>", "<4>", "<5>", "<6>", "<7>"} <= set(run.punctuations())
    assert run.held() == {"auction": 0, "bid": 0}


def test_the_golden_state_holds_what_it_is_for():
    run = Story(golden_join(), snapshot=FILE.read_bytes())
    join = run.run.join
    assert all(side.tombstoned_rows for side in join.sides)
    assert len(join.closed_keys[1].ranges) == 1
    assert len(join.state.propagated) == 1
    assert sum(map(len, join.state.partial_punctuations)) == 2
    assert len(join.closed_keys[0].seen) == 5


# ---------------------------------------------------------------- another join is refused


def plain_join(a_columns="k x t:time", a=None, b=None, b_columns="k y t:time"):
    timed = {"time": "t", "lateness": "0 seconds"}
    return sj.join(
        stream("a", a_columns, **{**timed, **(a or {})}),
        stream("b", b_columns, **{**timed, **(b or {})}),
    )


OTHER_JOINS = {
    "another input": (
        lambda: sj.join(stream("a", "k x t:time", time="t"), stream("c", "k y t:time", time="t")),
        "the list of inputs was a, b and is now a, c",
    ),
    "a third input": (
        lambda: sj.join(
            stream("a", "k x t:time", time="t"), stream("b", "k y t:time", time="t"), stream("c", "k z")
        ),
        "the list of inputs was a, b and is now a, b, c",
    ),
    "another order of inputs": (
        lambda: sj.join(stream("b", "k y t:time", time="t"), stream("a", "k x t:time", time="t")),
        "the list of inputs was a, b and is now b, a",
    ),
    "another key column": (
        lambda: plain_join("k x t:time", {"key": "x"}),
        r"key= of a was \['k'\] and is now \['x'\]",
    ),
    "another key type": (
        lambda: plain_join("k:str x t:time", b_columns="k:str y t:time"),
        "the type of the key was int64 and is now string",
    ),
    "another type of a column": (
        lambda: plain_join("k x:str t:time"),
        "column x of a was int64 and is now str",
    ),
    "no time": (
        lambda: plain_join(a={"time": None, "lateness": None}),
        "time= of a was t and is now none: write time=t",
    ),
    "a window": (
        lambda: plain_join(a={"window": "10 seconds"}),
        'window= of a was none and is now "10 s"',
    ),
    "a unique key": (
        lambda: plain_join(b={"unique": True}),
        "the key of b was not unique and now is: leave out",
    ),
    "another arrival": (lambda: plain_join(a={"arrival": sj.ordered()}), "arrival"),
}


@pytest.mark.parametrize("change", OTHER_JOINS)
@unbounded_is_meant
def test_a_state_of_another_join_is_refused_with_what_changed(change):
    make, named = OTHER_JOINS[change]
    run = Story(plain_join(a={"arrival": sj.clustered()}) if change == "another arrival" else plain_join())
    run.push("a", "k x t\n1 10 5\n2 20 6")
    with pytest.raises(sj.StateFormatError, match=f"cannot go on from its state: .*{named}"):
        make().local(snapshot=run.run.snapshot())


@pytest.mark.parametrize(("fact", "value"), [("hash", "xxhash64"), ("buckets", 64)])
@unbounded_is_meant
def test_another_hash_or_number_of_buckets_is_refused(fact, value):
    """Stored hashes are good for the one that computed them only."""
    plan = plain_join().plan
    snapshot = plain_join().local().snapshot()
    other = replace(plan, spec=replace(plan.spec, **{fact: value}))
    with pytest.raises(
        sj.StateFormatError, match=r"hash was local and is now xxhash64|buckets, and this join has 64"
    ):
        sj.LocalRun(other, snapshot=snapshot)


@unbounded_is_meant
def test_what_may_change_may_change():
    """Names of the join, strategies, the goal, lateness, what is done with violations."""
    run = Story(plain_join())
    run.push("a", "k x t\n1 10 5")
    timed = {"time": "t", "lateness": "1 minute", "on_violation": "keep"}
    other = sj.join(
        stream("a", "k x t:time", **timed),
        stream("b", "k y t:time", **timed),
        name="renamed",
        goal="memory",
        driver=sj.RoundRobin(quota=1),
        propagate=False,
    )
    again = Story(other, snapshot=run.run.snapshot())
    assert again.push("b", "k y t\n1 11 6") == [(1, 10, 5, 11, 6)]
