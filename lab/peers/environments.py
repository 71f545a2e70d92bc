"""The peers' own environments: `.peers/<name>-<version>/` under the current folder, made once.

A peer's pins clash with ours, so each has a virtual environment with one pinned package, installed by pip
with the user's own configuration. A file `.ready` is written last; an environment without it is made anew.
What cannot be made is a `Failed` that says why. Cost: Flink 850 MB and minutes, bytewax 230 MB.

Flink's lookup join needs its JDBC connector, which is not on the package index: `mvn dependency:copy` brings
it (the release for Flink 2.0: a lookup join with it ran on 2.3; there is none for 2.3 itself).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.contenders.protocol import Failed
from lab.peers.flink import Flink

HOME = Path(".peers")
_TIMEOUT_S = 1800.0
_CONNECTOR = "4.0.0-2.0"
JDBC_JARS = (
    f"org.apache.flink:flink-connector-jdbc-core:{_CONNECTOR}",
    f"org.apache.flink:flink-connector-jdbc-postgres:{_CONNECTOR}",
    "org.postgresql:postgresql:42.7.3",
)


@dataclass(frozen=True)
class Peer:
    """A package with an environment of its own."""

    name: str
    package: str
    version: str

    @property
    def folder(self) -> Path:
        return HOME / f"{self.name}-{self.version}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


FLINK = Peer("flink", "apache-flink", "2.3.0")
BYTEWAX = Peer("bytewax", "bytewax", "0.21.1")


_FAILED: dict[Peer, Failed] = {}  # what could not be made in this run is not tried again in it


def python_of(peer: Peer, say: Callable[[str], None]) -> Path | Failed:
    """The Python of a peer's environment, which is made if it is not ready."""
    ready = peer.folder / ".ready"
    if ready.exists():
        return peer.python
    if peer in _FAILED:
        return _FAILED[peer]
    say(f"{peer.name} {peer.version}: making its environment in {peer.folder} (minutes, once)")
    shutil.rmtree(peer.folder, ignore_errors=True)
    pip = [str(peer.python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    for command in (
        [sys.executable, "-m", "venv", str(peer.folder)],
        # apache-beam, which Flink asks for, builds with a setuptools that still has pkg_resources
        [*pip, "setuptools<81", "wheel"],
        [*pip, f"{peer.package}=={peer.version}"],
    ):
        why = _ran(command)
        if why is not None:
            _FAILED[peer] = Failed(peer.name, f"{peer.package} {peer.version} cannot be installed: {why}")
            return _FAILED[peer]
    ready.touch()
    return peer.python


def flink(say: Callable[[str], None]) -> Flink | Failed:
    """Flink without connectors."""
    python = python_of(FLINK, say)
    return python if isinstance(python, Failed) else Flink(python, FLINK.version)


def flink_with_jdbc(say: Callable[[str], None]) -> Flink | Failed:
    """Flink with what a lookup join in PostgreSQL needs."""
    found = flink(say)
    if isinstance(found, Failed):
        return found
    if shutil.which("mvn") is None:
        return Failed("flink", "its JDBC connector comes from Maven Central: needs mvn on PATH")
    folder = FLINK.folder / "jars"
    jars = [folder / "{1}-{2}.jar".format(*name.split(":")) for name in JDBC_JARS]
    for name, jar in zip(JDBC_JARS, jars, strict=True):
        if jar.exists():
            continue
        say(f"flink {FLINK.version}: {jar.name} from Maven Central")
        copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={name}"]
        why = _ran([*copy, f"-DoutputDirectory={folder.resolve()}"])
        if why is not None:
            return Failed("flink", f"{jar.name} could not be fetched: {why}")
    return Flink(found.python, found.version, jars)


def _ran(command: Sequence[str]) -> str | None:
    """None, or why it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = (done.stderr or done.stdout).strip().splitlines()
    return None if done.returncode == 0 else " ".join(lines[-3:])[-500:]
