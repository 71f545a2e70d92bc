"""What the constraint monitor has to say: declarations that the data breaks, and some that it would keep;
and where the state is far from what the cost model expected, why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamjoin.declare.stream import Clustered, Stream, duration_text

ENOUGH_KEYS = 64  # sampled, before anything is said of them
ENOUGH_ROWS = 200
STAYS = 0.05  # a share of the tuples that is worth a word
NARROW = 16  # the widest slack that is worth a declaration

_BROKEN = {
    "late": "came later than the declared lateness allows",
    "duplicate_key": "repeat a key that is declared unique",
    "after_punctuation": "came after a promise that no more of their key would come",
    "null_time": "have no event time",
}


def advice(streams: Sequence[Stream], figures: Mapping[str, int]) -> list[str]:
    """Sentences about each stream, from `<input>_<figure>` as counters and metrics have them."""
    timed = all(stream.time is not None for stream in streams)
    return _fell_back(figures) + [
        sentence
        for stream in streams
        for sentence in [
            *_broken(stream, figures),
            *_kept(stream, figures),
            *_unexpected(stream.name, figures, timed=timed),
        ]
    ]


def _fell_back(figures: Mapping[str, int]) -> list[str]:
    batches = figures.get("driver_fallbacks", 0)
    if not batches:
        return []
    why = "it needs selectivities, and rows of all inputs had not met by then"
    return [f"the driver took each input in turn in {batches:,} batches (of a bucket): {why}"]


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


def _unexpected(name: str, figures: Mapping[str, int], *, timed: bool) -> list[str]:
    """Why the state of an input is far from what was predicted, and what nothing seems to let go of."""
    held, predicted, found, rate_then, rate_now, lasting = (
        figures.get(f"{name}_{figure}", 0)
        for figure in (
            *("state_rows", "predicted_rows", "refitted_rows"),
            *("predicted_rate", "measured_rate", "unevicted_rate"),
        )
    )
    told = []
    if rate_then and rate_now and max(held, predicted) >= ENOUGH_ROWS and _far(held, predicted):
        causes = []
        if _far(rate_now, rate_then, 1.25):
            causes.append(f"{rate_now / rate_then:.2g} times as many rows come")
        stay_then, stay_now = predicted / rate_then * 1e9, found / rate_now * 1e9
        if _far(stay_now, stay_then, 1.25):
            now, then = (_span(stay, timed=timed) for stay in (stay_now, stay_then))
            causes.append(f"they stay needed for {now} instead of {then}")
        told.append(
            f"{name} holds {held / max(predicted, 1):.2g} times what the model expects "
            f"({held:,} tuples, {predicted:,} expected): {'; '.join(causes) or 'its rows come in bursts'}"
        )
    if held >= ENOUGH_ROWS and rate_now and lasting >= STAYS * rate_now:
        told.append(
            f"{name}: nothing seems to let {100 * lasting / rate_now:.0f} % of its tuples go, while others "
            "leave; see in explain() what must hold for that, e.g. that every key is promised"
        )
    return told


def _far(a: float, b: float, factor: float = 2.0) -> bool:
    return max(a, b) > factor * min(a, b)


def _span(clock: float, *, timed: bool) -> str:
    return duration_text(clock) if timed else f"{clock:,.0f} rows"
