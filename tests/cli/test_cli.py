import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamjoin.cli.main import commands


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
    assert "as the batch join over all rows has them" in done.output
    assert "final counts, as its group by has them" in done.output
    assert "auctions ended inside the window" in done.output
    assert "auctions outlast the window" in done.output
    assert (tmp_path / "demo-auction.png").stat().st_size > 10_000


def test_the_smallest_auction_demo_runs(tmp_path: Path) -> None:
    command = ["demo", "auction", "--local", "--items", "1", "--bids", "0", "--out", str(tmp_path)]
    done = CliRunner().invoke(commands, command)
    assert done.exit_code == 0, done.output


def test_the_local_rooms_demo_checks_its_answer_and_draws_a_picture(tmp_path: Path) -> None:
    command = ["demo", "rooms", "--local", "--rooms", "3", "--hours", "0.5", "--batch-minutes", "5"]
    done = CliRunner().invoke(commands, [*command, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "the same as the batch join over all rows gives" in done.output
    assert "purged by ends of minutes" in done.output
    assert (tmp_path / "demo-rooms.png").stat().st_size > 10_000
    smallest = ["demo", "rooms", "--local", "--rooms", "1", "--hours", "0.1", "--out", str(tmp_path)]
    assert CliRunner().invoke(commands, smallest).exit_code == 0


def test_the_local_warehouse_demo_checks_its_answer_and_draws_a_picture(tmp_path: Path) -> None:
    command = ["demo", "warehouse", "--local", "--scale", "0.05", "--batch-rows", "200"]
    done = CliRunner().invoke(commands, [*command, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "both give exactly the rows of the batch join" in done.output
    assert "further batches without orders answered them" in done.output
    assert (tmp_path / "demo-warehouse.png").stat().st_size > 10_000


def test_every_command_has_help() -> None:
    groups = ([], ["demo"])
    single = (
        ["demo", "news"],
        ["demo", "auction"],
        ["demo", "rooms"],
        ["demo", "warehouse"],
        ["state"],
        ["rebucket"],
    )
    for command in (*groups, *single):
        done = CliRunner().invoke(commands, [*command, "--help"])
        assert done.exit_code == 0
        assert "Usage:" in done.output


@pytest.mark.parametrize("missing", ["matplotlib", "plotext", "pyspark"])
def test_a_demo_names_the_extra_that_brings_a_missing_package(missing: str, tmp_path: Path) -> None:
    code = f"""
import sys
class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing)
from streamjoin.cli import main
main()
"""
    command = [sys.executable, "-c", code, "demo", "news", "--items", "30", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'pip install "streamjoin[' in done.stderr.splitlines()[-1]
    if missing == "pyspark":
        local = subprocess.run([*command, "--local"], capture_output=True, text=True, check=False)
        assert local.returncode == 0, local.stderr
