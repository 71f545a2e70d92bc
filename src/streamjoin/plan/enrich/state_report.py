"""State report of a stored enrichment: rows that wait for each version, the cache, the waiting room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from streamjoin.plan.explain import size_text
from streamjoin.state.manifest import Manifest


@dataclass(frozen=True)
class EnrichSize:
    """State size of one bucket, or of all; `waiting` are rows by version, an upper bound."""

    waiting: Mapping[str, int]
    cache_rows: int
    cache_bytes: int
    waiting_room: int
    rows: int  # since the start, and of them those that the cache answered
    hits: int

    @classmethod
    def of(cls, manifest: Manifest) -> EnrichSize:
        """The size by a bucket's manifest; no run is opened."""
        tiers, facts = manifest.tiers, manifest.facts
        waiting = {
            one["version"]: _rows(manifest, f"chunks {number}") for number, one in enumerate(facts["scans"])
        }
        cache = [run for tag in ("cache", "absent") for tier in tiers[tag] for run in tier]
        return cls(
            waiting,
            _rows(manifest, "cache") + _rows(manifest, "absent"),
            sum(run.nbytes for run in cache),
            _rows(manifest, "waiting_room"),
            facts["counts"]["rows"],
            facts["counts"]["hits"],
        )

    @classmethod
    def together(cls, parts: Iterable[EnrichSize]) -> EnrichSize:
        found = list(parts)
        waiting: Counter[str] = Counter()
        for one in found:
            waiting.update(one.waiting)
        numbers = [sum(column) for column in zip(*(_numbers(one) for one in found), strict=True)]
        return cls(dict(waiting), *numbers)


def _numbers(size: EnrichSize) -> tuple[int, ...]:
    return size.cache_rows, size.cache_bytes, size.waiting_room, size.rows, size.hits


def _rows(manifest: Manifest, tag: str) -> int:
    """The live rows of a part of the state."""
    runs = [run for tier in manifest.tiers.get(tag, ()) for run in tier]
    return sum(run.rows - (0 if run.tombstones is None else int(run.tombstones.sum())) for run in runs)


@dataclass(frozen=True)
class EnrichState:
    """The state of an enrichment, by bucket."""

    operator: int
    identity: Mapping[str, Any]
    buckets: Mapping[int, EnrichSize]

    @property
    def name(self) -> str:
        return str(self.identity["name"])

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {
            "operator": self.operator,
            "join": self.name,
            "how": self.identity["how"],
            "buckets": self.identity["buckets"],
            "state": asdict(EnrichSize.together(self.buckets.values())),
            "by_bucket": {str(number): asdict(one) for number, one in self.buckets.items()},
        }

    def text(self) -> str:
        """The report as text."""
        size, shown = EnrichSize.together(self.buckets.values()), sorted(self.buckets)
        of = f"{self.identity['buckets']} buckets"
        of = of if len(shown) == self.identity["buckets"] else f"bucket {shown[0]} of {of}"
        how = f"{self.identity['how']} join"
        lines = [f"{self.name} (operator {self.operator}): a stream and a table, {how}, {of}", ""]
        lines += [
            f"version {version}: {f'at most {rows:,} rows wait for it' if rows else 'no row waits for it'}"
            for version, rows in size.waiting.items()
        ]
        share = f", which answered {size.hits / size.rows:.0%} of {size.rows:,} rows" if size.rows else ""
        lines.append(f"cache: {size.cache_rows:,} rows and values, {size_text(size.cache_bytes)}{share}")
        if self.identity["waiting room"]:
            lines.append(f"waiting room: {size.waiting_room:,} rows without a match so far")
        return "\n".join(lines)
