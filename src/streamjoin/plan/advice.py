"""What the constraint monitor has to say: declarations that the data breaks, and some that it would keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamjoin.metadata import Clustered, Stream

ENOUGH_KEYS = 64  # sampled, before anything is said of them
ENOUGH_ROWS = 200
NARROW = 16  # the widest slack that is worth a declaration

_BROKEN = {
    "late": "came later than the declared lateness allows",
    "duplicate_key": "repeat a key that is declared unique",
    "after_promise": "came after a promise that no more of their key would come",
    "null_time": "have no event time",
}


def advice(streams: Sequence[Stream], figures: Mapping[str, int]) -> list[str]:
    """Sentences about each stream, from `<input>_<figure>` as counters and metrics have them."""
    return [
        sentence for stream in streams for sentence in [*_broken(stream, figures), *_kept(stream, figures)]
    ]


def _broken(stream: Stream, figures: Mapping[str, int]) -> list[str]:
    found = [
        f"{stream.name}: {rows:,} rows {what} ({reason})"
        for reason, what in _BROKEN.items()
        if (rows := figures.get(f"{stream.name}_{reason}", 0))
    ]
    if stream.arrival is not None:
        widest, slack = figures.get(f"{stream.name}_arrival_slack", 0), stream.arrival.slack
        kind = "clustered" if isinstance(stream.arrival, Clustered) else "ordered"
        verdict = "kept" if widest <= slack else "broken"
        found.append(
            f"{stream.name}: {kind} arrival {verdict}, widest slack seen {widest} of {slack} declared"
        )
    return found


def _kept(stream: Stream, figures: Mapping[str, int]) -> list[str]:
    def figure(name: str) -> int:
        return figures.get(f"{stream.name}_{name}", 0)

    found = []
    repeats = figure("repeated_keys") > 0
    if not stream.unique and not repeats and figure("sampled_keys") >= ENOUGH_KEYS:
        found.append(
            f"{stream.name}: no key repeats in a sample of {figure('sampled_keys')}; "
            "if that is a rule, declare unique=True"
        )
    if stream.arrival is not None or stream.inner is not None or figure("ordered_rows") < ENOUGH_ROWS:
        return found
    orders = {
        "ordered(slack={})": figure("ascending_slack"),
        "ordered(descending=True, slack={})": figure("descending_slack"),
    }
    if repeats:  # where no key repeats, clusters say nothing
        orders["clustered(slack={})"] = figure("clustered_slack")
    for declaration, slack in orders.items():
        if slack <= NARROW:
            found.append(
                f"{stream.name}: keys came that way in {figure('ordered_rows'):,} rows looked at; "
                f"if that is a rule, declare arrival=sj.{declaration.format(slack)}"
            )
            break  # ordered says more than clustered
    return found
