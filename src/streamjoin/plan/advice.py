"""Advice from the constraint monitor: declared constraints that the data violates, constraints that it would
satisfy; and why the state differs from what the cost model predicts, where it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamjoin.declare.durations import duration_text
from streamjoin.declare.stream import Stream
from streamjoin.join.notices import SAID

ENOUGH_KEYS = 64  # sampled before any advice on them
ENOUGH_ROWS = 200
STAYS = 0.05  # a share of the tuples that is worth a sentence
NARROW = 16  # the widest slack that is worth a declaration


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
        for reason, what in SAID.items()
        if (rows := figures.get(f"{stream.name}_{reason}", 0))
    ]
    lost = figures.get(f"{stream.name}_control_rows_with_data", 0)
    if lost and stream.punctuation is not None:
        declared = stream.punctuation.declared
        said = f"{lost:,} rows that are punctuations by {declared} have data, which is never joined"
        instead = stream.punctuation.instead.rstrip(". ")
        found.append(f"{stream.name}: {said} (control_rows_with_data){'. ' if instead else ''}{instead}")
    if stream.arrival is not None:
        widest, slack = figures.get(f"{stream.name}_arrival_slack", 0), stream.arrival.slack
        verdict = "kept" if widest <= slack else "broken"
        found.append(
            f"{stream.name}: {stream.arrival.name} arrival {verdict}, "
            f"widest slack seen {widest} of {slack} declared"
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
    if stream.arrival is not None or stream.upstream is not None or figure("ordered_rows") < ENOUGH_ROWS:
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
    """Why the state of an input is far from what was predicted, and which tuples nothing seems to evict."""
    stored, predicted, found, rate_then, rate_now, lasting = (
        figures.get(f"{name}_{figure}", 0)
        for figure in (
            *("state_rows", "predicted_rows", "refitted_rows"),
            *("predicted_rate", "measured_rate", "unevicted_rate"),
        )
    )
    sentences = []
    if rate_then and rate_now and max(stored, predicted) >= ENOUGH_ROWS and _far(stored, predicted):
        causes = []
        if _far(rate_now, rate_then, 1.25):
            causes.append(f"{rate_now / rate_then:.2g} times as many rows come")
        stay_then, stay_now = predicted / rate_then * 1e9, found / rate_now * 1e9
        if _far(stay_now, stay_then, 1.25):
            now, then = (_span(stay, timed=timed) for stay in (stay_now, stay_then))
            causes.append(f"they stay needed for {now} instead of {then}")
        sentences.append(
            f"{name} holds {stored / max(predicted, 1):.2g} times what the model expects "
            f"({stored:,} tuples, {predicted:,} expected): {'; '.join(causes) or 'its rows come in bursts'}"
        )
    if stored >= ENOUGH_ROWS and rate_now and lasting >= STAYS * rate_now:
        sentences.append(
            f"{name}: nothing seems to evict {100 * lasting / rate_now:.0f} % of its tuples, while others "
            "are; explain() lists what must hold for that, e.g. that every key is punctuated"
        )
    return sentences


def _far(a: float, b: float, factor: float = 2.0) -> bool:
    return max(a, b) > factor * min(a, b)


def _span(clock: float, *, timed: bool) -> str:
    return duration_text(clock) if timed else f"{clock:,.0f} rows"
