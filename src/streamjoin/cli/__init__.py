"""The command line, one file a command."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """The program `streamjoin`: its commands, or what to install for them."""
    missing = [package for package in ("click", "rich") if find_spec(package) is None]
    if missing:
        sys.exit(f'The command line needs {" and ".join(missing)}; pip install "streamjoin[cli]"')
    from streamjoin.cli.main import main as run

    run()
