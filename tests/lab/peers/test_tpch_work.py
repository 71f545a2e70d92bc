"""The files of the TPC-H comparison."""

from __future__ import annotations

import numpy as np
from pyarrow import csv

from lab.peers.tpch_work import TpchSize, prepare


def test_an_orders_lines_come_together_and_nothing_is_sorted(tmp_path):
    work = prepare(tmp_path / "work", TpchSize(scale=0.001, batches=3))
    read = csv.ReadOptions(column_names=list(work.inputs["lines"]))
    lines = csv.read_csv(work.folder / "lines.csv", read_options=read)
    keys = lines["l_orderkey"].to_numpy()
    clusters = 1 + np.count_nonzero(np.diff(keys))
    assert clusters == len(np.unique(keys)) == 1_500
    assert np.any(np.diff(keys) < 0)
    assert work.answer.rows == len(lines)  # each line has an order, each order a customer
    assert work.rows == len(lines) + 1_500
    assert len(list((work.folder / "orders").iterdir())) == len(list((work.folder / "lines").iterdir())) == 3
