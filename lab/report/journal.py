"""What a long run has finished, on disk: after an interruption it goes on with what is not there.

A folder beside the result: a JSON file and pictures for each finished part, and a scratch folder for prepared
data. It belongs to one form of the run (`--quick` or full) of one state of the code on one set of
versions; anything else begins anew, so a report never mixes two programs. Removed when the report is written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import lab
import streamjoin
from lab.experiment import Claim, versions
from lab.report.figures import Figure, Table


@dataclass(frozen=True)
class StoredFigure:
    """A figure as it is kept: pictures are files."""

    id: str
    title: str
    setting: str
    statement: str
    claims: list[Claim]
    pictures: list[str]
    table: Table | None
    notes: list[str]
    series: dict[str, Any]

    @classmethod
    def of(cls, kept: dict[str, Any]) -> StoredFigure:
        table = None if kept["table"] is None else Table(**kept["table"])
        return cls(**{**kept, "claims": [Claim.of(one) for one in kept["claims"]], "table": table})


@dataclass(frozen=True)
class Outcome:
    """What a part left, how long it took, and when it was finished."""

    figures: list[StoredFigure]
    seconds: float
    when: str


class Journal:
    """The folder; `pictures` is where a figure's files are."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder, self.pictures, self.scratch = folder, folder / "pictures", folder / "scratch"
        mark, wanted = folder / "run.json", {"quick": quick, "versions": versions(), "code": code_hash()}
        if not (mark.exists() and json.loads(mark.read_text()) == wanted):
            shutil.rmtree(folder, ignore_errors=True)
            for each in (self.pictures, self.scratch):
                each.mkdir(parents=True)
            mark.write_text(json.dumps(wanted))

    def has(self, part: str) -> bool:
        """Whether a part was finished."""
        return (self.folder / f"{part}.json").exists()

    def finished(self, part: str) -> Outcome:
        """What a finished part left."""
        kept = json.loads((self.folder / f"{part}.json").read_text())
        return Outcome([StoredFigure.of(one) for one in kept["figures"]], kept["seconds"], kept["when"])

    def keep(self, part: str, figures: Sequence[Figure], seconds: float) -> Outcome:
        """Draw the pictures, and write the part as finished: the rename is the last thing."""
        stored = [self._stored(figure) for figure in figures]
        outcome = Outcome(stored, seconds, datetime.now(UTC).isoformat(timespec="seconds"))
        begun = self.folder / f"{part}.begun"
        begun.write_text(json.dumps(asdict(outcome), default=_plain))
        begun.rename(self.folder / f"{part}.json")
        return outcome

    def _stored(self, figure: Figure) -> StoredFigure:
        names = [f"{figure.id}-{i}.png" for i, _ in enumerate(figure.pictures, 1)]
        for name, picture in zip(names, figure.pictures, strict=True):
            picture.png(self.pictures / name)
        return StoredFigure(
            figure.id,
            figure.title,
            figure.setting,
            figure.statement,
            list(figure.claims),
            names,
            figure.table,
            list(figure.notes),
            dict(figure.series),
        )

    def publish(self, pictures: Path) -> None:
        """Copy the pictures to where the report looks for them."""
        shutil.rmtree(pictures, ignore_errors=True)
        shutil.copytree(self.pictures, pictures)

    def close(self) -> None:
        """The run is over."""
        shutil.rmtree(self.folder)


def _plain(value: Any) -> Any:
    """A number or an array of numpy, as JSON knows it."""
    return value.tolist()


def code_hash() -> str:
    """Of the library's code and the lab's: a measurement depends on both."""
    digest = sha256()
    for package in (streamjoin, lab):
        root = Path(package.__file__ or "").parent
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{root.name}/{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
