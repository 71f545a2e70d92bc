"""Operator state: everything that one hash bucket of a join stores between batches.

`components()` is the registration list of its parts (`state.component`): what stands there survives a
stop, is rebucketed and is counted. The operator and its eviction share one `OperatorState`; the objects
in it are never replaced, so both may keep references to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from streamjoin.columnar.batch import NO_TIME
from streamjoin.join.arrival_order import follower
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.counters import JoinCounters
from streamjoin.join.deferred import DeferredMatches
from streamjoin.join.follower_state import FollowerState
from streamjoin.join.forwarded_punctuations import ForwardedPunctuations
from streamjoin.join.group_by import GroupBy
from streamjoin.join.outputs import StateSize
from streamjoin.join.partial_punctuations import PartialPunctuations
from streamjoin.join.pending_purge import PendingPurge
from streamjoin.join.propagation import PropagatedKeys, RangePropagation
from streamjoin.join.scheduled_punctuations import ScheduledPunctuations
from streamjoin.join.spec import JoinSpec
from streamjoin.join.statistics.forecast import Calibration, Size
from streamjoin.join.statistics.monitor import Monitor
from streamjoin.join.statistics.selectivity import Selectivities
from streamjoin.join.strategies.purge import NoPurge
from streamjoin.join.watermarks import Watermarks
from streamjoin.state.closed_keys import ClosedKeys
from streamjoin.state.component import RunsComponent, StateComponent
from streamjoin.state.memory import MemoryManager
from streamjoin.state.sorted_runs import RunNames, SortedRuns


class OperatorState:
    """State of a join, or of one hash bucket of it. `sides[i]` are the live tuples of input i."""

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        memory_manager = MemoryManager(spec.memory_share, spec.strategies.spill.flush)
        self.names = names = RunNames(memory_manager=memory_manager)
        policy, layouts = spec.compaction, [one.layout for one in spec.inputs]
        numbered = list(enumerate(layouts))
        self.sides = [SortedRuns(f"s{i}", layout, names, policy) for i, layout in numbered]
        self.watermarks = watermarks = Watermarks(spec.inputs)
        timed = spec.times_closed_keys
        self.closed_keys = [
            ClosedKeys(f"p{i}", layout, names, policy, i, partial(watermarks.latest, i) if timed else None)
            for i, layout in numbered
        ]
        self.partial_punctuations = [
            PartialPunctuations(f"q{i}", layout, names, spec.inputs[i].partitions, i)
            for i, layout in numbered
        ]
        self.scheduled = [ScheduledPunctuations(f"w{i}", layout, names, policy, i) for i, layout in numbered]
        self.forwarded = [ForwardedPunctuations(one, i) for i, one in enumerate(spec.inputs)]
        self.propagated = PropagatedKeys(
            layouts[0], names, policy, watermarks.latest_of_all if timed else None
        )
        only_end = not spec.propagate or isinstance(spec.strategies.purge, NoPurge)
        self.range_propagation = RangePropagation(spec.key_types, only_end=only_end, counted=spec.feeds_join)
        self.pending_purge = PendingPurge(layouts[0])
        self.pending_removal = [PendingPurge(layouts[0], f"pending_removal {i}") for i, _ in numbered]
        self.deferred = DeferredMatches(memory_manager, active=spec.defers)
        self.groups = (
            None if spec.grouping is None else GroupBy(spec.grouping, names, policy, null_safe=spec.null_safe)
        )
        self.counters = JoinCounters(len(spec.inputs))
        self.followers = [follower(one.arrival, one.layout, one.name) for one in spec.inputs]
        self.monitors = [Monitor(i) for i, _ in numbered]
        self.calibration = Calibration(spec)
        self.selectivities = Selectivities(len(spec.inputs))

    def components(self) -> list[StateComponent]:
        """Every state component, in the order in which inspection shows them; register a new one here."""
        found: list[StateComponent] = [
            *(RunsComponent(f"tuples {i}", side, "tuples", i) for i, side in enumerate(self.sides)),
            *self.closed_keys,
            *self.forwarded,
            *self.partial_punctuations,
            *self.scheduled,
            self.propagated,
            self.pending_purge,
            *self.pending_removal,
            self.deferred,
            self.watermarks,
            self.counters,
            *(FollowerState(one, i) for i, one in enumerate(self.followers) if one is not None),
            *self.monitors,
            self.calibration,
            self.selectivities,
            self.range_propagation,
        ]
        found += [] if self.groups is None else [self.groups]
        return found

    def others(self, i: int) -> list[int]:
        """The numbers of all inputs but i."""
        return [other for other in range(len(self.sides)) if other != i]

    def sorted_runs(self) -> Iterator[SortedRuns]:
        """The sorted runs of all components."""
        for component in self.components():
            yield from component.sorted_runs()

    @property
    def nbytes(self) -> int:
        """Bytes of all runs, tombstoned rows included."""
        return sum(side.nbytes for side in self.sorted_runs())

    def size(self) -> StateSize:
        """What the state is made of now."""
        rows = dict.fromkeys(("tuples", "punctuations", "pending", "groups", "statistics"), 0)
        for component in self.components():
            rows[component.holds] += component.state_rows
        nbytes, memory_manager = self.nbytes, self.names.memory_manager
        resident = nbytes if memory_manager.limit_bytes is None else memory_manager.resident_bytes
        return StateSize(
            rows["tuples"], nbytes, rows["punctuations"], rows["pending"], resident, rows["groups"]
        )

    def calibrate(self, arrivals: dict[int, Arrivals]) -> None:
        """A batch ends: measure, and make a new forecast where one is due."""
        earliest = None
        if self.calibration.begin is None and self.calibration.timed:
            times = [one.rows.time[one.rows.time != NO_TIME] for one in arrivals.values()]
            earliest = min((float(some.min()) for some in times if len(some)), default=None)
        if self.calibration.tick(self.watermarks, earliest):
            sizes = [Size(side.live_rows, side.nbytes) for side in self.sides]
            size = self.size()
            closed_key_bytes = size.nbytes - sum(one.nbytes for one in sizes)
            self.calibration.plan_term(sizes, size.closed_keys, closed_key_bytes)
