"""Thousands of short scripts, each checked against the naive model after every operation.

`SIMULATION_SEED` moves the seeds; a failure prints its seed and the smallest script that repeats it.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.checks import verdict
from tests.simulation.generate import script
from tests.simulation.script import Script
from tests.simulation.shrink import shrink

BASE = int(os.environ.get("SIMULATION_SEED", "1"))
CHUNK = 100


def report(seed: int, failing: Script) -> str:
    smallest, failed = shrink(failing)
    return f"seed {seed}: {failed}\n\n{smallest.source()}\n\nSIMULATION_SEED={seed} repeats it first."


def run(first: int, count: int) -> None:
    for seed in range(first, first + count):
        made = script(seed)
        if verdict(made) is not None:
            pytest.fail(report(seed, made), pytrace=False)


@pytest.mark.parametrize("chunk", range(20))
def test_library_does_what_the_model_says(chunk: int) -> None:
    run(BASE + chunk * CHUNK, CHUNK)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(20))
def test_library_does_what_the_model_says_at_length(chunk: int) -> None:
    run(BASE + 1_000_000 + chunk * 20 * CHUNK, 20 * CHUNK)


def test_a_seed_always_gives_the_same_script() -> None:
    assert all(script(seed).source() == script(seed).source() for seed in range(20))


def test_a_script_is_printed_as_python_that_repeats_it() -> None:
    for seed in range(20):
        made = script(seed)
        names: dict[str, object] = {}
        code = made.source().replace("check(Script(", "again = (Script(")
        exec(code, names)
        again = names["again"]
        assert isinstance(again, Script)
        assert again.source() == made.source()
        assert verdict(again) is None
