"""A progress bar for staging, on a terminal where rich is installed; elsewhere nothing is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

OnProgress = Callable[[int, int | None], None]  # the work done, and all of it where that is known


def is_shown() -> bool:
    """Whether there is a terminal, and rich to draw on it."""
    return sys.stderr.isatty() and find_spec("rich") is not None


@contextmanager
def progress_bar(title: str) -> Iterator[OnProgress]:
    """What to call with the work done so far; the bar is erased at the end."""
    if not is_shown():
        yield lambda *_: None
        return
    # rich is an extra, and slow to import
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
