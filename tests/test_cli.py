from pathlib import Path

import pytest
from click.testing import CliRunner

from streamjoin.cli import commands


def test_the_local_demo_checks_its_answer_and_draws_a_picture(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        commands, ["demo", "news", "--local", "--items", "60", "--records", "8", "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    assert "the same as the batch join over all rows gives" in done.output
    assert "Is the state bounded?" in done.output
    assert (tmp_path / "demo-news.png").stat().st_size > 10_000


def test_the_local_auction_demo_checks_its_answer_and_draws_a_picture(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        commands, ["demo", "auction", "--local", "--items", "200", "--bids", "3", "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    assert "as the batch join over all rows gives" in done.output
    assert "auctions ended inside the window" in done.output
    assert "auctions outlast the window" in done.output
    assert (tmp_path / "demo-auction.png").stat().st_size > 10_000


def test_the_smallest_auction_demo_runs(tmp_path: Path) -> None:
    command = ["demo", "auction", "--local", "--items", "1", "--bids", "0", "--out", str(tmp_path)]
    done = CliRunner().invoke(commands, command)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("form", ["xml", "parquet"])
def test_generated_streams_are_files(tmp_path: Path, form: str) -> None:
    done = CliRunner().invoke(
        commands, ["generate", "news", "--items", "5", "--format", form, "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {f"news.{form}", f"access.{form}"}


def test_the_lab_names_its_experiments_and_refuses_others() -> None:
    listed = CliRunner().invoke(commands, ["lab", "list"])
    assert listed.output.startswith("throughput")
    refused = CliRunner().invoke(commands, ["lab", "run", "nothing"])
    assert refused.exit_code == 2
    assert "'nothing' is not one of throughput" in refused.output


def test_every_command_has_help() -> None:
    for command in (
        [],
        ["demo"],
        ["demo", "news"],
        ["demo", "auction"],
        ["generate", "news"],
        ["lab", "run"],
    ):
        done = CliRunner().invoke(commands, [*command, "--help"])
        assert done.exit_code == 0
        assert "Usage:" in done.output
