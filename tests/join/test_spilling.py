"""A memory limit: what leaves memory, what that changes (nothing), and XJoin's stages where joining waits."""

import resource
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.join.strategies.spill import size_bytes
from streamjoin.local.join import LocalRun
from streamjoin.state.sorted_runs import CompactionPolicy
from tests.tables import NOTHING, Story, stream, unbounded_is_meant, with_memory

NEWS = stream("news", "sno title:str", unique=True)
ACCESS = stream("access", "sno ip:str is_end:bool", punctuation=sj.marked("is_end"))


# ---------------------------------------------------------------- what a user gives


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (1000, 1000),
        ("64 MB", 64 << 20),
        ("64mb", 64 << 20),
        ("1.5 GiB", 3 << 29),
        ("512k", 512 << 10),
        ("7", 7),
    ],
)
def test_a_size(given, size):
    assert size_bytes(given) == size


@pytest.mark.parametrize("given", [0, -1, True, 1.5, "much", "MB", "-3 MB", ["1 MB"]], ids=repr)
def test_no_size(given):
    with pytest.raises(sj.InvalidJoin, match="give a size such as"):
        sj.join(NEWS, ACCESS, memory=given)


def test_a_limit_below_the_minimum_names_it():
    with pytest.raises(
        sj.InvalidJoin, match="below the minimum of 1,048,576: 1,048,576 for each of 1 bucket;"
    ):
        sj.join(NEWS, ACCESS, memory="1000 KB")
    with pytest.raises(
        sj.InvalidJoin, match="below the minimum of 8,388,608: 1,048,576 for each of 8 buckets;"
    ):
        sj.join(NEWS, ACCESS, memory="5 MB", buckets=8)


def test_another_flush_is_refused():
    with pytest.raises(sj.InvalidJoin, match="give one of largest, oldest"):
        sj.SpillAbove("1 MB", flush="newest")


def test_the_plan_says_what_happens():
    assert "memory: 64 MB, the largest runs leave first (what left memory is read run by run" in str(
        sj.join(NEWS, ACCESS, memory="64 MB").explain()
    )
    lazy = sj.join(NEWS, ACCESS, memory=sj.SpillAbove("64 MB", flush="oldest", defer=True))
    assert "the oldest runs leave first (what left memory is joined when inputs are blocked" in lazy.explain()


# ---------------------------------------------------------------- ten times the limit


def many_batches(count):
    """Keys of any batch so far; most of what a batch meets has left memory."""
    random = np.random.default_rng(5)
    for i in range(count):
        one = np.arange(i * 200, (i + 1) * 200)
        many = random.integers(0, (i + 1) * 200, 2000)
        yield {
            "one": pa.table({"k": one, "a": [f"{key:0200}" for key in one]}),
            "many": pa.table({"k": many, "b": [f"{key:0200}" for key in many]}),
        }


@unbounded_is_meant
@pytest.mark.parametrize("how", ["inner", "full", "left_semi"])
@pytest.mark.parametrize("flush", ["largest", "oldest"])
def test_a_state_of_ten_times_the_limit_gives_the_exact_answer_within_it(how, flush):
    one, many = stream("one", "k a:str"), stream("many", "k b:str")
    free = sj.join(one, many, how=how).local()
    bound = sj.join(one, many, how=how, memory=sj.SpillAbove("1 MB", flush=flush)).local()
    for batch in many_batches(25):
        assert bound.step(batch).num_rows == free.step(batch).num_rows
        assert bound.state().resident_bytes <= 1 << 20
    assert bound.state().rows == free.state().rows
    if how == "inner":
        assert bound.state().nbytes > 10 * (1 << 20)
    assert sorted(map(str, bound.finish().to_pylist())) == sorted(map(str, free.finish().to_pylist()))
    assert not any(bound.state().rows.values())


@unbounded_is_meant
def test_files_go_with_what_they_hold():
    run = sj.join(stream("one", "k a:str"), stream("many", "k b:str"), memory="1 MB").local()
    for batch in many_batches(10):
        run.step(batch)
    folder = run._spilled.files.folder
    files = sum(path.stat().st_size for path in folder.iterdir())
    assert run.state().nbytes / 2 < files < 3 * run.state().nbytes
    run.finish()
    assert list(folder.iterdir()) == []
    del run
    assert not folder.exists()


FULL = """
import resource, sys, warnings
import streamjoin as sj
from tests.join.test_spilling import many_batches
from tests.tables import stream
warnings.simplefilter("ignore", sj.UnboundedState)
run = sj.join(stream("one", "k a:str"), stream("many", "k b:str"), memory="1 MB").local()
batches = many_batches(20)
found = [run.step(next(batches)).num_rows for _ in range(3)]
saved = run.snapshot()
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    for batch in list(batches):
        run.step(batch)
    sys.exit("nothing failed")
except sj.LimitExceeded as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
again = sj.join(stream("one", "k a:str"), stream("many", "k b:str"), memory="1 MB").local(snapshot=saved)
found += [again.step(batch).num_rows for batch in list(many_batches(20))[3:]]
print(sum(found))
"""


def test_a_disk_that_takes_no_more_ends_the_run_and_its_snapshot_goes_on():
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, check=True)
    error, rows = done.stdout.strip().splitlines()
    assert error.startswith("no room to spill")
    assert error.endswith("and go on from the last snapshot")
    assert int(rows) == 20 * 2000  # every row of many has its one


# ---------------------------------------------------------------- joining that waits (XJoin's stages)


def lazy(*inputs, limit=1, **options):
    """A story in which everything leaves memory after its turn, and joining with it waits."""
    plan = with_memory(sj.join(*inputs, **options).plan, sj.SpillAbove(limit, defer=True))
    story = Story(sj.Joined(plan))
    story.idle = lambda: story._tell("idle")
    return story


@unbounded_is_meant
def test_pairs_with_what_left_memory_come_when_the_inputs_are_blocked():
    run = lazy(stream("a", "k x"), stream("b", "k y"))
    assert run.push("a", "k x\n1 10\n2 20") == NOTHING
    assert run.push("b", "k y\n1 11\n3 31") == NOTHING  # a has left memory
    assert run.run.state().deferred == 2  # rows of b that may have partners there
    assert run.idle() == [(1, 10, 11)]
    assert run.idle() == NOTHING  # once
    assert run.push("a", "k x\n3 30") == NOTHING
    assert run.idle() == [(3, 30, 31)]
    assert run.run.finish().num_rows == 0


@unbounded_is_meant
def test_in_memory_they_come_at_once_and_not_again():
    run = lazy(stream("a", "k x"), stream("b", "k y"), limit=1 << 20)
    run.push("a", "k x\n1 10")
    assert run.push("b", "k y\n1 11") == [(1, 10, 11)]
    assert run.idle() == NOTHING
    assert run.run.finish().num_rows == 0


@unbounded_is_meant
def test_the_end_of_the_inputs_gives_all_that_is_owed():
    run = lazy(stream("a", "k x"), stream("b", "k y"), stream("c", "k z"))
    run.push("a", "k x\n1 10\n2 20")
    run.push("b", "k y\n1 11\n2 21")
    assert run.push("c", "k z\n1 12") == NOTHING
    assert run.run.finish().to_pylist() == [{"k": 1, "x": 10, "y": 11, "z": 12}]
    assert not any(run.run.state().rows.values())


def test_a_promise_waits_for_the_pairs_of_its_key_and_so_does_its_announcement():
    run = lazy(NEWS, ACCESS)
    run.push("news", "sno title\n79 Cashless")
    assert run.push("access", "sno ip is_end\n79 1.1.1.1 false\n79 - true") == NOTHING
    assert run.run.state().rows == {"news": 1, "access": 1}  # promised, but the pair is owed
    assert run.punctuations() == []
    assert run.idle() == [(79, "Cashless", "1.1.1.1")]
    assert run.punctuations() == ["<79>"]
    assert run.run.state().empty


def test_a_row_out_of_its_window_stays_until_its_pair_is_given():
    timed = {"time": "t", "lateness": "0 seconds", "window": "10 seconds"}
    run = lazy(stream("a", "k t:time x", **timed), stream("b", "k t:time y", **timed))
    run.push("a", "k t x\n1 0 10")
    run.push("b", "k t y\n1 5 11")
    run.push("b", "k t y\n9 100 90")
    run.push("a", "k t x\n9 200 91")  # both are far past 1 now
    assert (1, 0, 10, 5, 11) in run.idle() + run.idle()
    assert run.run.state().rows == {"a": 1, "b": 0}


def test_an_xjoin_with_a_limit_waits_and_a_pjoin_does_not():
    assert sj.join(NEWS, ACCESS, memory="1 MB", operator="xjoin").plan.spec.defers
    assert not sj.join(NEWS, ACCESS, memory="1 MB", operator="pjoin").plan.spec.defers
    outer = sj.join(NEWS, ACCESS, memory=sj.SpillAbove("1 MB", defer=True), how="full")
    assert not outer.plan.spec.defers  # whether a row matched must be known when it leaves


@unbounded_is_meant
def test_rows_that_owe_survive_a_restart():
    plan = with_memory(sj.join(stream("a", "k x"), stream("b", "k y")).plan, sj.SpillAbove(1, defer=True))
    plan = replace(
        plan, spec=replace(plan.spec, compaction=CompactionPolicy(fanout=2, smallest_class_rows=1))
    )
    run = LocalRun(plan)
    for i in range(6):
        run.push("a", pa.table({"k": [i, i + 1], "x": [i, i]}))
        run.push("b", pa.table({"k": [i], "y": [i]}))
        run = LocalRun(plan, snapshot=run.snapshot())
    found = sorted((row["k"], row["x"], row["y"]) for row in run.finish().to_pylist())
    assert found == sorted((i, x, i) for i in range(6) for x in {max(i - 1, 0), i})
