"""What `pip install streamjoin` alone can do: import, join here, and say what to install for more."""

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

import streamjoin

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
OPTIONAL = ("adbc_driver_postgresql", "click", "grpc", "matplotlib", "plotext", "psutil", "pyspark", "rich")

# A finder in front of all others that knows nothing of the packages named on the command line.
WITHOUT = """
import sys
class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing)
import importlib.util
importlib.util.find_spec = lambda name: None if name in sys.argv[1:] else object()
"""


def run(code: str, missing: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT + code, *missing]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_import_loads_nothing_optional_and_no_generator() -> None:
    done = run("import streamjoin; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    rooms = ("streamjoin.cli", "streamjoin.demo", "streamjoin.plot", "streamjoin.spark", "lab")
    assert [name for name in loaded if name.split(".")[0] in OPTIONAL] == []
    assert [name for name in loaded if name.startswith(rooms)] == []


def test_the_import_needs_only_what_is_declared() -> None:
    declared = {name.split(">")[0] for name in PYPROJECT["project"]["dependencies"]}
    assert declared == {"numpy", "pandas", "pyarrow"}
    done = run("import streamjoin", OPTIONAL)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "missing", "extra"),
    [
        ("import streamjoin as sj; sj.session()", "pyspark", "spark"),
        ("import streamjoin.plot", "matplotlib", "plot"),
        ("import streamjoin.plot", "plotext", "plot"),
        ("from streamjoin.cli import main; main()", "click", "cli"),
        ("from streamjoin.cli import main; main()", "rich", "cli"),
        (
            "import streamjoin as sj; sj.postgresql('postgresql://nowhere/none', table='t').schema()",
            "adbc_driver_postgresql",
            "postgresql",
        ),
    ],
)
def test_what_is_missing_is_named_with_its_extra(code: str, missing: str, extra: str) -> None:
    done = run(code, [missing])
    assert done.returncode == 1
    assert f'pip install "streamjoin[{extra}]"' in done.stderr.splitlines()[-1]
    assert extra in PYPROJECT["project"]["optional-dependencies"]


def test_the_command_without_click_gives_no_trace() -> None:
    done = run("from streamjoin.cli import main; main()", ["click", "rich"])
    assert done.stderr == 'The command line needs click and rich; pip install "streamjoin[cli]"\n'


def test_the_version_stands_in_one_place() -> None:
    assert "version" not in PYPROJECT["project"]
    assert PYPROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "streamjoin.__version__"}
    done = run("sys.argv = ['streamjoin', '--version']; from streamjoin.cli import main; main()")
    assert done.stdout == f"streamjoin, version {streamjoin.__version__}\n"
