"""A progress bar for staging, on a terminal; elsewhere nothing is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Told = Callable[[int, int | None], None]  # how much is done, and of how much where that is known


def is_shown() -> bool:
    """Whether someone looks."""
    return sys.stderr.isatty()


@contextmanager
def progress_bar(title: str) -> Iterator[Told]:
    """What to call with the work done so far; the bar is taken away at the end."""
    if not is_shown():
        yield lambda *_: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
