"""Scripts from seeds.

`script(seed)` is a whole script, with everything that can go wrong in it: null keys and times,
late rows, second rows of unique keys, rows after their own punctuation. `conforming` gives streams
that break nothing, to be cut and interleaved at will.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import inf, nan
from random import Random
from typing import Any, NamedTuple

from tests.simulation.script import (
    KNOWS,
    START,
    Advance,
    Control,
    End,
    Eq,
    Finish,
    Input,
    Operation,
    Punctuate,
    Push,
    Restart,
    Row,
    Script,
    Settings,
    rank,
)
from tests.simulation.source import EXTRAS, Habits, Shape, Source


class Kind(NamedTuple):
    """Key types that are widened to one, and values that all of them hold exactly.

    `needed`: at least one input has this type, so that the common type is the values' own.
    """

    types: tuple[str, ...]
    values: tuple[Any, ...]
    needed: str | None = None


_HOURS = tuple(datetime(2024, 10, 27, hour, tzinfo=UTC) for hour in (1, 2, 3))
KINDS = (
    Kind(("int64", "int32", "int16", "int8"), (-3, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 127)),
    Kind(("int64", "uint8", "uint32"), (0, 1, 2, 3, 4, 5, 6, 200)),
    Kind(("string", "large_string", "dictionary"), ("", "a", "a\0", "ab", "b", "é", "z", '"', "\U0001f600")),
    Kind(("float64", "float32"), (nan, -0.0, 0.0, 1.5, -1.5, 2.0, inf, -inf)),
    Kind(("float64", "int32", "float32"), (-0.0, 0.0, 1.0, 2.0, 3.0, -1.0), "float64"),
    Kind(("micros", "millis", "seconds"), tuple(START + timedelta(seconds=n) for n in range(9))),
    Kind(("micros", "date"), tuple(START + timedelta(days=n) for n in range(9)), "micros"),
    # an hour that the clock of Berlin shows twice
    Kind(("utc", "berlin"), tuple(datetime(2024, 10, 27, 0, 30 * n, tzinfo=UTC) for n in (0, 1)) + _HOURS),
    Kind(("date",), tuple(START.date() + timedelta(days=n) for n in range(9))),
    Kind(
        ("decimal2", "decimal4"),
        tuple(map(Decimal, ("0.00", "-1.25", "1.25", "1.26", "2.50", "10.00", "9.99", "100"))),
    ),
    Kind(("decimal2", "int32"), tuple(map(Decimal, ("-1", "0", "1", "2", "10"))), "decimal2"),
    Kind(("binary",), (b"", b"\0", b"a", b"b", b"\xff")),
    Kind(("bool",), (False, True)),
)


class Style(NamedTuple):
    """What a script is about: how often it restarts, punctuates, advances, ends an input, lets every
    input close a key that may then come again, and pushes rows."""

    weights: tuple[int, int, int, int, int, int]
    keys: tuple[int, int] = (2, 8)  # at least and at most, where the key is one column
    wide: float = 0.3  # the share of punctuations that are ranges or wildcards
    plain: bool = False  # few declarations, tombstoned rows stay long
    operations: tuple[int, int] = (3, 11)
    counts: tuple[int, ...] = (2, 2, 2, 2, 3, 3, 3, 4, 5, 6)  # of inputs


DRIVERS = (
    "round_robin",
    "random",
    "priority",
    "clusters",
    "timestamp",
    "consumption_rate",
    "initial_output",
    "output_rate",
    "adaptive",
)
_FEW = 4  # inputs of which each may bring many rows
HOW = ("left", "right", "full", "left_semi", "left_anti")
STYLES = (
    Style((12, 12, 5, 2, 5, 64)),
    Style((12, 12, 5, 2, 5, 64)),
    Style((8, 45, 3, 1, 2, 40), (5, 12), wide=0.75, operations=(6, 13), counts=(2, 2, 2, 3, 5)),
    Style((8, 2, 2, 0, 30, 58), (2, 3), plain=True, counts=(2, 2, 3, 3, 4, 6)),
)


def script(seed: int) -> Script:
    """The script of a seed."""
    rng = Random(seed)
    style = rng.choice(STYLES)
    count = rng.choice(style.counts)
    shape = _shape(rng, count=count, keys=style.keys if count <= _FEW else (1, 3))
    if style.plain:
        shape = _plain(shape)
    shape = _mortal(shape, Random(f"ttl {seed}"))
    habits = Habits(rng.choice((1.0, 0.9, 0.7)), style.wide)
    sources = [
        Source(rng, i, shape, habits._replace(lag=rng.choice((0, 0, 0, 6)))) for i in range(len(shape.inputs))
    ]
    clock, operations = 0, list[Operation]()
    for _ in range(rng.randint(*style.operations)):
        clock += rng.choice((0, 0, 1, 1, 2, 5))
        operations += _operations(rng, style, sources, clock)
    operations.append(Finish())
    if rng.random() < 0.05:
        operations += _operations(rng, style, sources, clock)
    return Script(shape.inputs, _grouped(seed, shape), tuple(operations))


def _grouped(seed: int, shape: Shape) -> Settings:
    """Every fourth join that can be is grouped; kept violations leave open which rows count."""
    possible = shape.settings.propagate and all(one.on_violation != "keep" for one in shape.inputs)
    return replace(shape.settings, group=possible and Random(f"group {seed}").random() < 0.25)


def _operations(rng: Random, style: Style, sources: list[Source], clock: int) -> list[Operation]:
    source = min(rng.sample(sources, 2), key=lambda each: each.number)  # the first ones say most
    what = rng.choices(("restart", "punctuate", "advance", "end", "renew", "push"), style.weights)[0]
    if what == "restart":
        return [Restart()]
    if what in ("punctuate", "advance") and source.declared.control and rng.random() < 0.7:
        return [source.control(clock)]
    if what == "punctuate":
        return [source.punctuate()]
    if what == "advance" and source.declared.time is not None:
        return [source.advance(clock + rng.randint(-3, 3))]
    if what == "end":
        return [source.end()]
    if what == "renew":
        return _new_life(rng, sources)
    if len(sources) <= _FEW:
        chosen, most = rng.sample(sources, rng.choice((1, 1, 1, 2, len(sources)))), 6
    else:  # all are needed for a result, and the model looks at every combination
        chosen, most = rng.sample(sources, rng.choice((1, 3, len(sources), len(sources)))), 2
    return [Push({each.number: each.rows(rng.randint(0, most), clock) for each in chosen})]


def _new_life(rng: Random, sources: list[Source]) -> list[Operation]:
    """Every input closes a key, which is then forgotten and may come again as a new one."""
    keys = {tuple(map(rank, key)): key for source in sources for key in source.history}
    if not keys:
        return []
    value, key = rng.choice(list(keys.items()))
    for source in sources:
        source.forget(value)
    return [Punctuate(source.number, tuple(map(Eq, key))) for source in rng.sample(sources, len(sources))]


# Conforming streams


class Element(NamedTuple):
    """One thing that happens on one input, and the time on everybody's clock."""

    clock: int
    what: Row | Punctuate | Control | Advance | End


class Streams(NamedTuple):
    """What happens on each input, in its order. With a `skew`, elements of different inputs may be
    interleaved only as far apart on the clock: an input that declares itself idle relies on it."""

    inputs: tuple[Input, ...]
    settings: Settings
    elements: tuple[tuple[Element, ...], ...]
    skew: int | None


def conforming(seed: int, count: int) -> Streams:
    """Streams that keep everything they declare, however they are cut and interleaved."""
    rng = Random(seed)
    shape = _shape(rng, count=count, keys=(2, 10 // count) if count <= _FEW else (2, 4))
    skew = rng.randint(0, 4) if any(one.idle is not None for one in shape.inputs) else None
    inputs = tuple(
        replace(
            one,
            on_violation="drop",
            idle=None if one.idle is None or skew is None else one.idle + skew + (one.lateness or 0) + 3,
        )
        for one in shape.inputs
    )
    purge = rng.choice(("immediate", "immediate", "few", "idle", "memory", "none"))
    defer = shape.settings.memory is not None and rng.random() < 0.5
    shape = shape._replace(settings=replace(shape.settings, purge=purge, defer=defer))
    lags = [rng.choice((0, 0, 6)) if skew is None else 0 for _ in inputs]
    shape = shape._replace(inputs=inputs)
    sources = [Source(rng, i, shape, Habits(lag=lag)) for i, lag in enumerate(lags)]
    elements: list[list[Element]] = [[] for _ in sources]
    clock = 0
    for _ in range(rng.randint(12, 16 * count) if count <= _FEW else rng.randint(6 * count, 9 * count)):
        clock += rng.choice((0, 0, 0, 0, 1, 1, 2))
        source = rng.choice(sources)
        dice = rng.random()
        what: Row | Punctuate | Control | Advance | End | None
        if dice < 0.01:
            what = source.end()
        elif dice < 0.04 and source.declared.time is not None:
            what = source.advance(clock + rng.randint(-3, 3))
        elif dice < 0.12:
            controlled = source.declared.control and rng.random() < 0.7
            what = source.control(clock) if controlled else source.punctuate()
        else:
            what = source.row(clock)
        if what is not None:
            elements[source.number].append(Element(clock, what))
    return Streams(inputs, shape.settings, tuple(map(tuple, elements)), skew)


# Declarations


def _shape(rng: Random, *, count: int, keys: tuple[int, int] = (2, 8)) -> Shape:
    kinds = [rng.choice(KINDS) for _ in range(rng.choice((1, 1, 1, 2)))]
    if len(kinds) == 1 and len(kinds[0].values) < 3:
        kinds = [*kinds, KINDS[0]]
    least, most = keys if len(kinds) == 1 else (2, 4) if count == 2 else (1, 2)
    domain = tuple(tuple(rng.sample(k.values, min(rng.randint(least, most), len(k.values)))) for k in kinds)
    weak = rng.random() < 0.25
    windowed = rng.random() < 0.6
    columns = [_types(rng, kind, count) for kind in kinds]
    inputs = [_input(rng, types, windowed=windowed, weak=weak) for types in zip(*columns, strict=True)]
    inputs = [one if one.window is None else replace(one, window=rng.randint(1, 3 * count)) for one in inputs]
    if windowed and all(one.window is None for one in inputs):
        inputs[0] = replace(inputs[0], window=rng.randint(1, 6))
    settings = replace(_settings(rng, weak=weak), driver=_driver(rng, inputs, weak=weak))
    if rng.random() < 0.2:
        inputs = [replace(one, on_violation=rng.choice(("keep", "drop"))) for one in inputs]
    elif rng.random() < 0.5:
        settings = replace(settings, how=rng.choice(HOW if count == 2 else ("left",)))
    settings = replace(settings, where=rng.random() < 0.15)
    settings = replace(settings, operator=_operator(rng, inputs) if rng.random() < 0.3 else None)
    if any(one.window is None for one in inputs) and settings.operator == "wjoin":
        settings = replace(settings, operator=None)  # rows would stay: nothing but a window lets them go
    return Shape(tuple(inputs), settings, domain)


def _driver(rng: Random, inputs: list[Input], *, weak: bool) -> str:
    """A driver that can run these inputs; clusters are told apart by their hash."""
    unfit = {"clusters"} if weak else set()
    if any(one.time is None for one in inputs):
        unfit.add("timestamp")
    return rng.choice([name for name in DRIVERS if name not in unfit])


def _operator(rng: Random, inputs: list[Input]) -> str | None:
    """A preset that can run these inputs."""
    facts = {
        "window": any(one.window is not None for one in inputs),
        "unique": any(one.unique for one in inputs),
        "arrival": any(one.clustered is not None or one.ordered is not None for one in inputs),
    }
    fitting = [
        name
        for name, knows in KNOWS.items()
        if (not facts["window"] or "window" in knows)
        and all(facts[fact] for fact in ("unique", "arrival") if fact in knows)
    ]
    return rng.choice(fitting)


def _mortal(shape: Shape, rng: Random) -> Shape:
    """In some scripts, inputs whose tuples are evicted at an age."""
    if rng.random() < 0.8:
        return shape
    ages = [rng.choice((1, 2, 4, 8)) if rng.random() < 0.7 else None for _ in shape.inputs]
    inputs = tuple(
        one if one.lateness is None else replace(one, ttl=age)
        for one, age in zip(shape.inputs, ages, strict=True)
    )
    return shape._replace(inputs=inputs)


def _plain(shape: Shape) -> Shape:
    """Inputs that close keys only when asked to, and runs that keep their tombstoned rows for long."""
    inputs = tuple(
        replace(
            one,
            unique=False,
            clustered=None,
            ordered=None,
            punctuation=None,
            control=(),
            wildcard=False,
            partitions=1,
        )
        for one in shape.inputs
    )
    settings = replace(shape.settings, tombstone_share=0.9, fanout=4, run_bytes=1 << 20, operator=None)
    return shape._replace(inputs=inputs, settings=settings)


def _types(rng: Random, kind: Kind, count: int) -> list[str]:
    types = [rng.choice(kind.types) for _ in range(count)]
    if kind.needed is not None and kind.needed not in types:
        types[rng.randrange(count)] = kind.needed
    return types


def _input(rng: Random, types: tuple[str, ...], *, windowed: bool, weak: bool) -> Input:
    timed = windowed or rng.random() < 0.3
    lateness = rng.choice((0, 0, 1, 2, 4)) if windowed or (timed and rng.random() < 0.5) else None
    declared = Input(
        types,
        time=rng.choice(("micros", "micros", "millis", "seconds", "nanos")) if timed else None,
        window=rng.randint(1, 6) if windowed and rng.random() < 0.7 else None,
        lateness=lateness,
        idle=rng.choice((0, 1, 3)) if lateness is not None and rng.random() < 0.3 else None,
        unique=rng.random() < 0.25,
        punctuation=rng.choice((None, "marked", "closing")),
        sequence=rng.choice((0, 0, 1)),
        x=rng.choice(tuple(EXTRAS)),
    )
    if rng.random() < 0.2:
        slack = rng.choice((0, 0, 1, 2))
        if len(types) > 1 or rng.random() < 0.5:
            declared = replace(declared, clustered=slack)
        else:
            declared = replace(declared, ordered=slack, descending=rng.random() < 0.3)
        if not weak and not declared.unique and rng.random() < 0.6:
            declared = replace(declared, sequence=2)
    elif not weak and not declared.unique and rng.random() < 0.25:
        # a weak hash would take two partitions for one
        declared = replace(declared, sequence=2)
        if rng.random() < 0.5:
            declared = replace(declared, punctuation="marked", partitions=2)
    if declared.punctuation == "marked" and rng.random() < 0.3:
        declared = replace(declared, wildcard=True)
    if lateness is not None and rng.random() < 0.35:
        forms = tuple(rng.choice(("value", "value", "list", "range")) for _ in types)
        declared = replace(declared, punctuation=None, wildcard=False, partitions=1, control=forms)
    return declared


def _settings(rng: Random, *, weak: bool) -> Settings:
    return Settings(
        unit=rng.choice(("second", "second", "hour")),
        fanout=rng.choice((2, 3, 4)),
        run_bytes=rng.choice((100, 200, 400, 1 << 20)),
        tombstone_share=rng.choice((0.0, 0.2, 0.5, 0.9)),
        smallest_class_rows=rng.randint(1, 4),
        frame_rows=rng.randint(1, 7),
        quota=rng.choice((None, None, 1, 2, 5)),
        weak_hash=weak,
        propagate=rng.random() > 0.05,
        order=rng.choice(("sequential", "sequential", "value_oriented")),
        probe=rng.choice(("most_selective", "most_selective", "fewest_rows")),
        memory=rng.choice((None, None, 1, 200, 600)),
        within=rng.random() < 0.4,
    )
