"""Start record: what a query's joins declared at each start, in the file `streamjoin.json` of its checkpoint.

With it a restart is checked before the query starts, and gets the number of buckets that its state has. The
state itself has all of it too, and has the last word; reading it takes a Spark job.

What was declared at a start is in the state once a batch was committed after it. So a record has for each
join its identity before the start (`was`) and at the start (`now`), and the last committed batch (`after`).
Worked case: batch 7 is committed, and a start declares one column more; if batch 8 is committed at the next
start, the state has that column; if not, the start failed and `was` is what the state has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamjoin.spark.files import Files

Identity = dict[str, Any]
NAME = "streamjoin.json"


@dataclass(frozen=True)
class Starts:
    """The start record of a checkpoint."""

    files: Files
    checkpoint: str

    @property
    def path(self) -> str:
        return f"{self.checkpoint.rstrip('/')}/{NAME}"

    def committed(self) -> int:
        """The last committed batch; -1 where there is none."""
        return max(self.files.numbers(f"{self.checkpoint.rstrip('/')}/commits"), default=-1)

    def stored(self, names: Sequence[str]) -> dict[str, Identity | None] | None:
        """The identity with which each join wrote the state, None where it has none yet.

        A join that was renamed is known by its place. None where the record does not say.
        """
        committed = self.committed()
        if committed < 0:
            return dict.fromkeys(names)
        joins = self._joins()
        if not set(names) <= joins.keys():
            if len(names) != len(joins) or set(names) & joins.keys():
                return None
            joins = dict(zip(names, joins.values(), strict=True))
        return {
            name: joins[name]["now"] if committed > joins[name]["after"] else joins[name]["was"]
            for name in names
        }

    def note(self, was: Mapping[str, Identity | None], now: Mapping[str, Identity]) -> None:
        """A start with these identities; joins of the same query that are declared apart stay."""
        committed = self.committed()
        joins = {
            name: {"was": was[name], "now": identity, "after": committed} for name, identity in now.items()
        }
        self.files.write(self.path, json.dumps({"joins": {**self._joins(), **joins}}, indent=1))

    def rebucketed(self, buckets: Mapping[str, int]) -> str | None:
        """The text of the record once the joins that are named have other numbers of buckets."""
        joins = self._joins()
        if not joins:
            return None
        for name, number in buckets.items():
            for when in ("was", "now"):
                if (identity := joins.get(name, {}).get(when)) is not None:
                    identity["buckets"] = number
        return json.dumps({"joins": joins}, indent=1)

    def _joins(self) -> dict[str, Any]:
        try:
            joins: dict[str, Any] = json.loads(self.files.read(self.path) or "{}").get("joins", {})
        except ValueError:  # a write was interrupted; the state has all of it too
            return {}
        return joins
