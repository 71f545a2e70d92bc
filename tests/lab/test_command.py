"""The lab's command: its experiments by name, and its generators as files."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from lab.__main__ import commands
from lab.generators.driver_sets import DRIVER_SETS
from lab.generators.patterns import pattern
from lab.generators.weather import WeatherStreams
from streamjoin.demo.generators.zipf import ZipfStreams


@pytest.mark.parametrize("form", ["xml", "parquet"])
def test_generated_streams_are_files(tmp_path: Path, form: str) -> None:
    done = CliRunner().invoke(
        commands, ["generate", "news", "--items", "5", "--format", form, "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {f"news.{form}", f"access.{form}"}


def test_generated_nexmark_is_one_file_for_each_table(tmp_path: Path) -> None:
    arguments = ["generate", "nexmark", "--events", "6000", "--seed", "3", "--out", str(tmp_path)]
    for more, bids in (([], 5_520), (["--punctuations"], 5_520 + 360 - 101)):
        done = CliRunner().invoke(commands, [*arguments, *more])
        assert done.exit_code == 0, done.output
        found = {path.stem: pq.read_table(path) for path in tmp_path.iterdir()}
        assert {name: len(table) for name, table in found.items()} == {
            "person": 120,
            "auction": 360,
            "bid": bids,
        }
        assert ("is_end" in found["bid"].column_names) is bool(more)


def test_a_generated_pattern_is_called_by_its_name(tmp_path: Path) -> None:
    arguments = ["generate", "pattern", "punct-asc-30-40", "--rows", "600", "--out", str(tmp_path)]
    done = CliRunner().invoke(commands, [*arguments, "--spread", "5", "--irrelevant", "1"])
    assert done.exit_code == 0, done.output
    table = pq.read_table(tmp_path / "punct-asc-30-40.parquet")
    assert table.equals(pattern("punct-asc-30-40", rows=600, seed=1, spread=5, irrelevant=1))
    refused = CliRunner().invoke(commands, ["generate", "pattern", "punct-up-3", "--out", str(tmp_path)])
    assert "There is no pattern 'punct-up-3'" in str(refused.exception)


def test_a_generated_driver_set_has_three_streams(tmp_path: Path) -> None:
    arguments = ["generate", "driver", "V", "--scale", "0.01", "--seed", "3", "--out", str(tmp_path)]
    done = CliRunner().invoke(commands, arguments)
    assert done.exit_code == 0, done.output
    wanted = DRIVER_SETS["V"].streams(scale=0.01, seed=3).tables
    for name in ("s1", "s2", "s3"):
        assert pq.read_table(tmp_path / f"{name}.parquet").equals(wanted[name])
    refused = CliRunner().invoke(
        commands, ["generate", "driver", "V", "--scale", "0", "--out", str(tmp_path)]
    )
    assert "Give a scale from 0.001" in str(refused.exception)


def test_generated_master_data_has_a_folder_for_each_side(tmp_path: Path) -> None:
    sizes = ["--rows", "500", "--stream-rows", "250", "--batch-rows", "100", "--out", str(tmp_path)]
    for kind, streams in (("zipf", ZipfStreams(rows=500)), ("weather", WeatherStreams(rows=500))):
        done = CliRunner().invoke(commands, ["generate", "table", kind, *sizes])
        assert done.exit_code == 0, done.output
        assert sorted(path.name for path in (tmp_path / "stream").iterdir()) == [
            f"000{i}.parquet" for i in range(3)
        ]
        assert pq.read_table(tmp_path / "table").equals(streams.table_rows(0, 500))
        assert pq.read_table(tmp_path / "stream").equals(streams.tuples(0, 250))
    scale = ["--scale", "0.001", "--batch-rows", "1000", "--out", str(tmp_path)]
    done = CliRunner().invoke(commands, ["generate", "table", "tpch", *scale])
    assert done.exit_code == 0, done.output
    assert len(pq.read_table(tmp_path / "table")) == 150
    assert [len(pq.read_table(path)) for path in sorted((tmp_path / "stream").iterdir())] == [1000, 500]


def test_the_lab_names_its_experiments_and_refuses_others() -> None:
    listed = CliRunner().invoke(commands, ["list"])
    assert listed.output.startswith("papers")
    refused = CliRunner().invoke(commands, ["run", "nothing"])
    assert refused.exit_code == 2
    assert "'nothing' is not one of papers, peers, scale, spark-joins, state" in refused.output


def test_every_command_has_help() -> None:
    generated = ("news", "nexmark", "pattern", "driver", "table")
    for command in ([], ["list"], ["run"], ["generate"], *(["generate", kind] for kind in generated)):
        done = CliRunner().invoke(commands, [*command, "--help"])
        assert done.exit_code == 0
        assert "Usage:" in done.output
