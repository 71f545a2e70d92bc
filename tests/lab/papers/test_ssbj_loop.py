"""The closed loop of the SSBJ figures: it checks its answers, and numbers are what they say."""

import time

import numpy as np
import pyarrow as pa
import pytest

from lab.papers.ssbj_bench import FORMS as VARIANTS
from lab.papers.ssbj_bench import MESHJOIN, OURS, SSBJ, Bench, Sizes, spec_of
from lab.papers.ssbj_loop import BatchJoin, ClosedLoop, Sums, tuples
from lab.papers.ssbj_tables import Disk, table_batch
from lab.state_model import table_cache
from lab.state_model.table_cache import Shift, shift_claim
from streamjoin.demo.generators.zipf import ZipfStreams
from streamjoin.errors import InvariantBroken

ROWS, SEGMENTS = 3_000, 6
SMALL = Sizes(rows=ROWS, segments=SEGMENTS)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("tables"))


def loop(bench, form, w=100):
    disk = bench.table(form, ROWS, SEGMENTS)
    made = ClosedLoop.of(
        form.says, spec_of(form, 4 * max(disk.segment_bytes)), disk, bench.batch_join(ROWS, 1.0)
    )
    made.w = w
    return made


@pytest.mark.parametrize("form", VARIANTS, ids=lambda form: form.name)
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


def test_master_rows_are_read_as_they_were_made():
    table = ZipfStreams(seed=3, rows=50).table_rows(0, 50)
    batch = table_batch(table)
    order = pa.array(np.argsort(batch.payload[0].to_numpy()))
    assert batch.data.take(order).column(3).equals(table["pad"].combine_chunks())


def test_with_memory_for_all_nothing_is_read_in_the_end(bench):
    read = table_cache.becomes_main_memory(bench, OURS, rows=200)
    assert read[0] > 0
    assert read[-1] == 0


def test_the_hit_rate_comes_back_after_a_shift(bench):
    found = table_cache.shifted(bench, OURS, SMALL, memory=0.5)
    assert found.hit_rates[found.at] < 0.9 * found.old
    assert found.cycles_until_back() is not None


def test_cycles_until_the_hit_rate_is_back():
    assert Shift([0.5, 0.5, 0.5, 0.1, 0.3, 0.4, 0.6], 3).cycles_until_back() == 3
    assert Shift([0.5, 0.5, 0.5, 0.1], 3).cycles_until_back() is None


def test_what_does_not_come_back_does_not_hold():
    gone = shift_claim(Shift([0.5, 0.5, 0.5, 0.1], 3))
    assert (gone.holds, gone.measured) == (False, None)
    assert shift_claim(Shift([0.5, 0.5, 0.5, 0.1, 0.5], 3)).holds is True
