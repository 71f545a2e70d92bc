"""The protocol of the peers: an answer is right or the contender has failed, by name."""

import json
import sys
from dataclasses import asdict, replace

import pyarrow as pa
import pytest

from lab.contenders.protocol import Answer, Check, Failed, Measured, Work, run_contender, write_input

ROWS = pa.table({"k": [5, 6], "a": [2, 1], "b": [3, 1], "t": ["xy", "z"]})


@pytest.fixture
def work(tmp_path):
    return Work("small", "two rows", tmp_path, {}, 2, Check(("a", "b"), "k").answer(ROWS))


def contender(code, work, timeout_s=30.0):
    return run_contender([sys.executable, "-c", code], "other", work, timeout_s)


def printing(work, **changed):
    found = Measured("other", "", 1.0, 2.0, 3.0, work.answer, 0.5, [(1.0, 2, None)])
    return f"print('noise'); print({json.dumps(asdict(replace(found, **changed)))!r})"


def test_the_answer_of_rows():
    assert Check(("a", "b"), "k").answer(ROWS) == Answer(2, 7, 853)
    assert Check(("a",), "k", texts=("t",)).answer(ROWS) == Answer(2, 6, (62 + 34) * 5 + (31 + 17) * 6)
    assert Check(("a",), "k", texts=("t",)).sql()[0] == "`a` + CAST(CHAR_LENGTH(`t`) AS BIGINT)"


def test_a_right_answer_is_measured(work):
    found = contender(printing(work), work)
    assert isinstance(found, Measured)
    assert (found.wall_s, found.state) == (2.0, [(1.0, 2, None)])


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('no memory left')", "ended with 1 on small: no memory left"),
        ("import time; time.sleep(60)", "took longer than 0.5 s"),
        ("print('hello')", "printed no measurement"),
        ("", "printed no measurement"),
    ],
)
def test_what_fails_is_named(work, code, why):
    found = contender(code, work, timeout_s=0.5 if "sleep" in code else 30.0)
    assert isinstance(found, Failed)
    assert found.engine == "other"
    assert why in found.why


def test_a_wrong_answer_is_a_failure(work):
    found = contender(printing(work, answer=replace(work.answer, mix=852)), work)
    assert isinstance(found, Failed)
    assert "wrong answer" in found.why


def test_a_program_that_is_not_there(work, tmp_path):
    found = run_contender([str(tmp_path / "python")], "other", work, 1.0)
    assert found == Failed("other", "cannot be started: No such file or directory")


def test_an_input_has_a_file_a_batch_and_all_in_one(tmp_path):
    time = pa.array([1_000_500, None], pa.timestamp("us", "UTC"))
    batch = pa.table({"k": [1, 2], "s": ["a b", None], "t": time, "is_end": [False, True]})
    in_chunks = pa.concat_tables([batch[:0], batch[:1], batch[1:1], batch[1:]])
    columns, rows = write_input(tmp_path, "bid", [batch, in_chunks])
    assert (columns, rows) == ({"k": "BIGINT", "s": "STRING", "t": "BIGINT", "is_end": "BOOLEAN"}, 2)
    assert (tmp_path / "bid" / "00001.csv").read_text() == "1,a b,1000,false\n2,,,true\n"
    assert (tmp_path / "bid.csv").read_text() == "1,a b,1000,false\n2,,,true\n" * 2


def test_files_of_an_input_have_times_in_their_order(tmp_path):
    write_input(tmp_path, "a", [pa.table({"k": [i]}) for i in range(5)])
    paths = sorted((tmp_path / "a").iterdir())
    times = [path.stat().st_mtime for path in paths]
    assert times == sorted(set(times))
