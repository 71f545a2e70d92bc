"""A progress bar for staging, on a terminal with rich installed; elsewhere nothing is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

Told = Callable[[int, int | None], None]  # how much is done, and of how much where that is known


def is_shown() -> bool:
    """Whether someone looks, and a bar can be drawn (the extra `cli`)."""
    return sys.stderr.isatty() and find_spec("rich") is not None


@contextmanager
def progress_bar(title: str) -> Iterator[Told]:
    """What to call with the work done so far; the bar is taken away at the end."""
    if not is_shown():
        yield lambda *_: None
        return
    from rich import console, progress  # noqa: PLC0415  # optional

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console.Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
