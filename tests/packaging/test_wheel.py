"""The wheel in an empty environment: what it brings, what it contains, and the README's local example."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import streamjoin

pytestmark = [pytest.mark.systems, pytest.mark.xdist_group("wheel")]

ROOT = Path(__file__).parents[2]
BROUGHT = {"numpy", "pandas", "pyarrow", "python-dateutil", "pytz", "six", "tzdata"}


def run(*command: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run in a folder, without this process's own way to find packages."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    arguments = list(map(str, command))
    return subprocess.run(arguments, cwd=folder, env=clean, capture_output=True, text=True, check=False)


def ran(*command: object, folder: Path) -> str:
    done = run(*command, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tree, the lab beside the package as in a clone."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("src", "lab"):
        unmade = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, folder / name, ignore=unmade)
    pip = (sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation")
    ran(*pip, "--wheel-dir", folder / "dist", folder, folder=folder)
    (built,) = (folder / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it asks for, in the locked versions."""
    folder = tmp_path_factory.mktemp("empty")
    locked = re.findall(r"^(\S+==\S+) \\$", (ROOT / "requirements/lock.txt").read_text(), re.MULTILINE)
    (folder / "constraints.txt").write_text("\n".join(locked))
    ran(sys.executable, "-m", "venv", folder / "venv", folder=folder)
    made = folder / "venv/bin/python"
    pip = (made, "-m", "pip", "--quiet", "install", "--only-binary", ":all:")
    ran(*pip, "-c", folder / "constraints.txt", wheel, folder=folder)
    return made


def test_the_demos_are_in_the_wheel_and_the_lab_and_the_tests_are_not(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert wheel.name == f"streamjoin-{streamjoin.__version__}-py3-none-any.whl"
    assert {name.split("/")[0].split("-")[0] for name in names} == {"streamjoin"}
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources
    assert "streamjoin/demo/generators/news.py" in sources
    assert "streamjoin/py.typed" in names


def test_the_environment_has_what_is_declared_and_no_more(python: Path, tmp_path: Path) -> None:
    listed = ran(python, "-m", "pip", "list", "--format", "freeze", folder=tmp_path)
    installed = {line.split("==")[0] for line in listed.splitlines()} - {"pip", "setuptools"}
    assert installed - {"streamjoin"} <= BROUGHT


def test_the_readmes_local_example_runs_there(python: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    example = next(block for block in blocks if "pa.schema" in block)
    code = f"import streamjoin as sj\n{example}\nprint(sj.__file__, sj.__version__, len(rows))"
    where, version, rows = ran(python, "-I", "-c", code, folder=tmp_path).splitlines()[-1].split()
    assert Path(where).is_relative_to(python.parents[1])
    assert (version, rows) == (streamjoin.__version__, "1")


def test_the_command_there_says_what_to_install(python: Path, tmp_path: Path) -> None:
    done = run(python.with_name("streamjoin"), "demo", "news", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr == 'The command line needs click and rich; pip install "streamjoin[cli]"\n'
