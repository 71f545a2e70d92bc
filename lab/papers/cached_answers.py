"""Work of the lab in two processes, each answer kept in a folder: what is there is not done again.

So figures of several parts can share the same measured cases, and a run that was interrupted goes on within a
part. A task is a frozen dataclass whose `repr` says all that its answer depends on, its `str` what a user is
told. Answers are read back by the code that wrote them: the folder belongs to one state of the code
(`journal`).
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from hashlib import sha256
from multiprocessing.connection import wait
from pathlib import Path
from typing import TypeVar

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def cached_answers(
    folder: Path,
    tasks: Sequence[Task],
    work: Callable[[Task], Answer],
    step: Callable[[str], None],
    *,
    workers: int = 2,
) -> dict[Task, Answer]:
    """The answers of all tasks; those that are not in the folder are worked out first."""
    folder.mkdir(parents=True, exist_ok=True)
    places = {task: folder / sha256(repr(task).encode()).hexdigest()[:24] for task in tasks}
    left = [task for task, place in places.items() if not place.exists()]
    for number, (task, answer) in enumerate(_as_done(left, work, workers), 1):
        unfinished = places[task].with_suffix(".part")
        unfinished.write_bytes(pickle.dumps(answer))
        unfinished.rename(places[task])
        step(f"{task}: {number} of {len(left)} done")
    return {task: pickle.loads(place.read_bytes()) for task, place in places.items()}  # noqa: S301  # our own


def _as_done(
    tasks: Sequence[Task], work: Callable[[Task], Answer], workers: int
) -> Iterator[tuple[Task, Answer]]:
    if workers == 1 or len(tasks) < 2:
        yield from ((task, work(task)) for task in tasks)
        return
    with _pool(workers) as pool:
        tasks_of = {pool.submit(work, task): task for task in tasks}
        try:
            for done in as_completed(tasks_of):
                yield tasks_of[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after an error: what has not begun is left


def each(tasks: Sequence[Task], work: Callable[[Task], Answer], workers: int) -> Iterator[Answer]:
    """The answers in the order of the tasks, from so many processes."""
    if workers == 1:
        yield from map(work, tasks)
        return
    with _pool(workers) as pool:
        yield from pool.map(work, tasks)


def _pool(workers: int) -> ProcessPoolExecutor:
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=spawn, initializer=end_with_parent)


def end_with_parent() -> None:
    """A process whose parent was killed ends too, instead of working on for nobody."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
