"""Run scripts by hand: `python -m tests.simulation --seed 123 --count 10000 [--bug NAME]`."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time

from tests.simulation.bugs import BUGS
from tests.simulation.checks import verdict
from tests.simulation.generate import script
from tests.simulation.shrink import shrink


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=1000, help="how many seeds")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--bug", choices=[bug.name for bug in BUGS], help="plant a bug first")
    asked = parser.parse_args()
    logging.getLogger("streamjoin").setLevel(logging.ERROR)  # dropped rows are what scripts are full of
    planted = [bug for bug in BUGS if bug.name == asked.bug]
    failures, started = 0, time.perf_counter()
    with planted[0].plant() if planted else contextlib.nullcontext():
        for done in range(asked.count):
            if done % 50 == 0:
                progress(done, asked.count, failures, started)
            made = script(asked.seed + done)
            if verdict(made) is None:
                continue
            failures += 1
            smallest, failed = shrink(made)
            print(f"\nseed {asked.seed + done}: {failed}\n\n{smallest.source()}\n")
            if not asked.keep_going:
                return 1
    progress(asked.count, asked.count, failures, started)
    print()
    return int(failures > 0)


def progress(done: int, count: int, failures: int, started: float) -> None:
    rate = 60 * done / max(time.perf_counter() - started, 1e-9)
    print(f"\r{done} of {count} scripts, {failures} failed, {rate:.0f} a minute ", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
