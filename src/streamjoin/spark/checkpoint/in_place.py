"""Replacing the state of a checkpoint in place, such that a kill at any moment leaves one to go on from.

    1. the new checkpoint is made beside the old one and verified      <checkpoint>.rebucketed
    2. the old one is copied                                           <checkpoint>-before-rebucket
    3. a journal in the checkpoint says: switching                     streamjoin-rebucket.json
    4. the old state is removed, the new one copied to its place
    5. the journal is removed, and the new checkpoint beside it

Before 3 the checkpoint is as it was; from 3 on the new one is complete, and step 4 can be done again from
its beginning, so it is finished by whoever finds the journal. No step needs a folder to be renamed at once.
While the journal is there a query is refused: by `write` and `dataframe(checkpoint=…)` with what to do, else
by Spark, which misses files of the state. The copy can be gone on from at any time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streamjoin.errors import InvalidJoin, StateFormatError
from streamjoin.spark.checkpoint.schemas import point_schemas_to
from streamjoin.spark.files import Files

JOURNAL = "streamjoin-rebucket.json"
_KEPT = "-before-rebucket"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Switch:
    """What is to be replaced: these files and folders of the checkpoint, by those of the new one.

    `beside` are folders that lie beside a checkpoint, by what their names add to its name: staged tables.
    """

    folder: str
    new: str
    kept: str
    buckets: int
    replaced: tuple[str, ...]
    beside: tuple[str, ...] = ()

    def run(self, files: Files, say: Say) -> None:
        """Steps 3 to 5."""
        files.write(f"{self.folder}/{JOURNAL}", json.dumps(asdict(self)))
        self.finish(files, say)

    def finish(self, files: Files, say: Say) -> None:
        """Steps 4 and 5, from whatever is done of them."""
        say(f"switching {self.folder} to {self.buckets} buckets")
        pairs = [(f"{self.new}/{one}", f"{self.folder}/{one}") for one in self.replaced]
        pairs += [(f"{self.new}{one}", f"{self.folder}{one}") for one in self.beside]
        for _, place in pairs:
            files.remove(place)
        for made, place in pairs:
            files.copy(made, place)
        files.remove(f"{self.folder}/{JOURNAL}")
        for one in ("", *self.beside):
            files.remove(f"{self.new}{one}")


def unfinished(files: Files, folder: str) -> Switch | None:
    """A switch of this checkpoint that was interrupted."""
    text = files.read(f"{folder.rstrip('/')}/{JOURNAL}")
    if text is None:
        return None
    saved: dict[str, Any] = json.loads(text)
    return Switch(**{**saved, **{name: tuple(saved[name]) for name in ("replaced", "beside")}})


def refuse_unfinished(files: Files, folder: str) -> None:
    """Refuse to start a query while the state of its checkpoint is being replaced."""
    switch = unfinished(files, folder)
    if switch is not None:
        raise StateFormatError(
            f"rebucketing {folder} was interrupted while it put the new state, in {switch.buckets} buckets, "
            f"in place; finish it with `streamjoin rebucket {folder} --in-place`, or go on from the copy of "
            f"the old one, {switch.kept}"
        )


def check_no_copy(files: Files, folder: str) -> None:
    """Refuse to write over the copy of an earlier checkpoint."""
    if files.exists(f"{folder}{_KEPT}"):
        raise InvalidJoin(
            f"{folder}{_KEPT} is there already, a copy that an earlier rebucketing kept; {folder} can be "
            "gone on from as it is, remove or rename the copy to rebucket it again"
        )


def keep_copy(files: Files, folder: str, beside: Sequence[str], say: Say) -> str:
    """Step 2: a copy of the checkpoint and of what lies beside it; returns its name."""
    kept = f"{folder}{_KEPT}"
    say(f"copying the old checkpoint to {kept}")
    for one in beside:
        files.remove(f"{kept}{one}")
        files.copy(f"{folder}{one}", f"{kept}{one}")
    files.remove(f"{kept}.partial")
    files.copy(folder, f"{kept}.partial")
    point_schemas_to(files, f"{kept}.partial", kept)
    files.rename(f"{kept}.partial", kept)
    return kept
