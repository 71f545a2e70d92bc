"""What an experiment found, said on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lab.experiment import Claim


def print_claims(console: Console, claims: Sequence[Claim], required: int, files: Sequence[Path]) -> None:
    """The claims, how many hold, and what was written."""
    for claim in claims:
        console.print(_line(claim), highlight=False, soft_wrap=True)
    holding = sum(claim.holds is True for claim in claims)
    impossible = sum(claim.verdict == "impossible" for claim in claims)
    told = f", {impossible} are impossible" if impossible else ""
    console.print(f"{holding} of {len(claims)} claims hold ({required} must){told}.", highlight=False)
    for file in files:
        console.print(f"Written: {file}", highlight=False)


def _line(claim: Claim) -> str:
    word = "DOES NOT HOLD" if claim.holds is False and claim.impossible is None else claim.verdict
    if claim.measured is None:
        return f"{word:14}{claim.says}: {claim.why}"
    aim = "" if claim.aim is None else f", aim {claim.aim:g}"
    spread = f" ({claim.low:.2f} to {claim.high:.2f} in {claim.runs} runs)" if claim.runs > 1 else ""
    why = f"; {claim.why}" if claim.why and not claim.holds else ""
    wanted = f"wanted {claim.op} {claim.target:g}{aim}{why}"
    return f"{word:14}{claim.says}: {claim.measured:.2f}{spread}, {wanted}"
