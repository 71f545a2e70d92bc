"""The semi-stream experiment: closed loops check their answers, and numbers are what they say."""

import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lab import semistream
from lab import semistream_local as local
from lab import semistream_spark as spark
from lab.semistream_local import (
    FORMS,
    MESHJOIN,
    OURS,
    SSBJ,
    Bench,
    Compared,
    Shift,
    Sizes,
    spec_of,
)
from lab.semistream_loop import BatchJoin, Loop, Stretch, Sums, tuples
from lab.semistream_masters import Disk, table_batch
from streamjoin.demo.generators.zipf import ZipfStreams
from streamjoin.errors import InvariantBroken

ROWS, SEGMENTS = 3_000, 6
SMALL = Sizes(rows=ROWS, segments=SEGMENTS, memory=0.5, shift_rows=ROWS, whole_rows=200)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("tables"))


def loop(bench, form, w=100):
    disk = bench.table(form, ROWS, SEGMENTS)
    made = Loop.of(form.says, spec_of(form, 4 * max(disk.segment_bytes)), disk, bench.batch_join(ROWS, 1.0))
    made.w = w
    return made


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_form_gives_the_batch_join_and_no_result_is_older_than_a_cycle(bench, form):
    one = loop(bench, form)
    stretch = one.run(5 * SEGMENTS)
    assert stretch.results > 1_000
    assert 0 < stretch.mean_age < SEGMENTS
    assert stretch.worst_age < SEGMENTS
    assert (stretch.hits > 0) is form.caches
    one.check()


def test_an_answer_that_is_not_the_batch_joins_is_not_reported(bench):
    one = loop(bench, OURS)
    one.run(SEGMENTS)
    one.found.add(0, 0, 1)
    with pytest.raises(InvariantBroken, match="nothing is reported"):
        one.check()


def test_sums_of_the_batch_join_are_those_of_its_pairs():
    streams = ZipfStreams(seed=3, rows=500)
    wanted, found = Sums(), Sums()
    BatchJoin(streams).add(wanted, tuples(streams, 100, 400))
    pairs = streams.tuples(100, 400).join(streams.table_rows(0, 500), "k", join_type="inner")
    assert len(pairs) > 300
    found.add_results(pairs.select(["k", "id", "x", "m", "pad"]).combine_chunks().to_batches()[0])
    assert found == wanted


def test_so_many_tuples_are_taken_that_the_memory_is_full(bench):
    one = loop(bench, MESHJOIN)
    one.warm((0.5, 0.9, 0.9))
    used = one.join.division().total / one.join.spec.memory_bytes
    assert used == pytest.approx(0.25 + 0.65 * 5 / 6, abs=0.03)  # a segment, and five of six chunks
    assert one.join.counts.segments_forced == 0


def test_a_slow_disk_takes_its_time_for_segments_and_pages(bench):
    disk = Disk(bench.table(OURS, ROWS, SEGMENTS).table, bytes_per_s=1e6)
    began = time.perf_counter()
    segment = disk.read(0)
    assert time.perf_counter() - began >= segment.nbytes / 1e6
    began = time.perf_counter()
    assert len(disk.find(0, segment.distinct_keys().slice(0, 10))) >= 10
    assert time.perf_counter() - began >= 10 * 4096 / 1e6
    assert disk.costs.find_s_per_key == 4096 * disk.costs.read_s_per_byte


def test_in_the_papers_form_segments_are_not_in_order(bench):
    paper, staged = (bench.table(form, ROWS, SEGMENTS) for form in (SSBJ, OURS))
    assert paper.starts is None
    assert np.all(np.diff(staged.starts) > 0)
    assert len(paper.segment_bytes) == SEGMENTS
    assert len(staged.segment_bytes) == pytest.approx(SEGMENTS, abs=1)
    rows = [sum(len(disk.read(i)) for i in range(len(disk.segment_bytes))) for disk in (paper, staged)]
    assert rows == [ROWS, ROWS]


def test_with_memory_for_all_nothing_is_read_in_the_end(bench):
    read = local.becomes_main_memory(bench, SMALL, OURS)
    assert read[0] > 0
    assert read[-1] == 0


def test_the_hit_rate_comes_back_after_a_shift(bench):
    found = local.shifted(bench, SMALL, OURS)
    assert found.hit_rates[found.at] < 0.9 * found.old
    assert found.cycles_until_back() is not None


def test_cycles_until_the_hit_rate_is_back():
    assert Shift([0.5, 0.5, 0.5, 0.1, 0.3, 0.4, 0.6], 3).cycles_until_back() == 3
    assert Shift([0.5, 0.5, 0.5, 0.1], 3).cycles_until_back() is None


def test_what_does_not_come_back_does_not_hold():
    gone = semistream._shift_claim(Shift([0.5, 0.5, 0.5, 0.1], 3))
    assert (gone.holds, gone.measured) == (False, None)
    assert semistream._shift_claim(Shift([0.5, 0.5, 0.5, 0.1, 0.5], 3)).holds is True


def stretch(rate):
    return Stretch(int(rate), 1, 1.0, 1.0, 0, 0.0, 0, 0, 0, 0, 0, {})


def test_the_least_memory_is_the_smallest_that_has_meshjoins_rate():
    """MESHJOIN has a rate of 100 with half of the table as memory, and of 300 with all of it."""
    rates = {disk: {"meshjoin": [stretch(100)], "streamjoin": [stretch(900)]} for disk in local.DISKS}
    at_full = Compared(1.0, {}, rates)
    others = {
        form: {memory: {disk: [stretch(rate)] for disk in local.DISKS} for memory, rate in found}
        for form, found in (
            ("streamjoin", ((0.25, 500), (0.1, 120), (0.05, 90))),
            ("meshjoin", ((1.0, 300),)),
        )
    }
    assert local.least_memory(SMALL, at_full, others, "as it is", 0.5) == pytest.approx(0.2)
    assert local.least_memory(SMALL, at_full, others, "as it is", 1.0) == pytest.approx(0.25)
    slower = {disk: {"meshjoin": [stretch(1000)], "streamjoin": [stretch(99)]} for disk in local.DISKS}
    assert local.least_memory(SMALL, replace(at_full, rates=slower), others, "as it is", 0.5) is None


def test_the_sums_of_a_prepared_enrichment_are_those_of_its_files(tmp_path):
    streams = ZipfStreams(seed=3, rows=2_000)
    data = spark.prepare(tmp_path, streams, {"long": 3, "short": 1}, batch_rows=300)
    for side, batches in (("long", 3), ("short", 1)):
        assert len(list((tmp_path / side).iterdir())) == batches
        rows = pq.read_table(tmp_path / side).join(pq.read_table(tmp_path / "table"), "k", join_type="inner")
        id_, m, k = (rows[name].to_numpy() for name in ("id", "m", "k"))
        check = np.array([spark.crc32(pad) for pad in rows["pad"].to_pylist()])
        mix = int((((id_ * 31 + m * 17 + check) % 1_000_003) * (k % 1_009)).sum())
        plain = int((id_ + m + rows["x"].to_numpy()).sum())
        assert data.answers[side] == {"rows": len(rows), "sum": plain, "mix": mix}


def test_the_last_half_of_the_batches_with_rows_counts():
    """Four batches with rows, one to drain; CPU seconds are since the query began."""
    found = {
        "input_rows": [100, 100, 100, 100, 0],
        "trigger_ms": [900, 900, 100, 300, 700],
        "cpu_s": [2.0, 4.0, 4.5, 5.5, 9.0],
        "latency": [{"rows": 10, "mean": 0.0, "worst": 0}] * 2
        + [{"rows": 10, "mean": 1.0, "worst": 2}, {"rows": 30, "mean": 2.0, "worst": 3}]
        + [{"rows": 9, "mean": 9.0, "worst": 9}],
    }
    assert spark.rate(found) == 500
    assert spark.cpu(found) == 1.5 * 1_000_000 / 200
    assert spark.latency(found) == {
        "mean_batches": 1.75,
        "worst_batches": 3,
        "mean_s": pytest.approx(0.55),
        "worst_s": pytest.approx(0.8),
    }


def test_table_rows_are_read_as_they_were_made():
    table = ZipfStreams(seed=3, rows=50).table_rows(0, 50)
    batch = table_batch(table)
    order = pa.array(np.argsort(batch.payload[0].to_numpy()))
    assert batch.data.take(order).column(3).equals(table["pad"].combine_chunks())
