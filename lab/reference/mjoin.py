"""Metadata-aware MJoin: 1-NP, and 1-NC as its special case (MJoin sections 4 and 5, figures 6 and 7).

Input a (0) has each key once; input b (1) has many rows of a key and punctuations. Both have a queue.

- Stream scheduling (4.1, 5.3): `priority` reads up to a quota of a, then up to a quota of b; `random` either.
- Tuple scheduling (4.2): `value_oriented` holds rows of a back in the waiting pool while a punctuation of b
  waits for another row; the pool is cleaned out when no such punctuation is left or b is read.
- On-the-fly dropping (4.3, figure 7): a row of b that found its row of a; a row of a whose key b has ended.
- Purging (5.2): every `purge_every` punctuations, when memory is full, when both queues are empty. It scans
  the whole state of a. 1 is immediate purging, rule 2; more is batch purging, rule 1.
- 1-NC (5.4, `clustered`): after a row of b was joined, b is read to the end of the cluster without further
  probes; another value ends the cluster, which is a punctuation.
- A bucket flushed to disk is joined while both queues are empty (`idle`), and at the end (`finish`).

A punctuation is propagated once every result of its key was made: no row of b with the key is stored. Worked
number: a1, b1, b1, End(b, 1): two results, the state holds a1 until the punctuation, which purges it and
leaves. No pair can come twice, since a row of b leaves at its first match.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Literal

from lab.reference.buckets import NEVER, HashState, Stored, flush_largest
from lab.reference.elements import Element, End, Output, Row, Work

A, B = 0, 1


@dataclass(frozen=True)
class Settings:
    """How it works; none of it changes the results. `memory`: rows that fit (None: all)."""

    streams: Literal["priority", "random"] = "priority"
    tuples: Literal["value_oriented", "sequential"] = "value_oriented"
    quota: tuple[int, int] = (10, 100)
    purge_every: int = 1
    clustered: bool = False
    propagate: bool = True
    buckets: int = 16
    memory: int | None = None
    page: int = 100
    seed: int = 0


class MJoin:
    """`offer` fills the queues, `step` takes one element of them; `drain` takes all."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.work, self.output = Work(), Output()
        self.queues: tuple[deque[Element], deque[Element]] = (deque(), deque())
        a, b = (HashState(self.settings.buckets, self.work, self.settings.page) for _ in (A, B))
        self.states = a, b
        self.pool: deque[Row] = deque()
        self.punctuated: set[int] = set()  # PR_b
        self._unpurged: set[int] = set()
        self._unpropagated: set[int] = set()  # punctuations whose rows of b wait for their row of a
        self._taken = [0, 0]  # the retrieval iterators
        self._driving: int | None = None
        self._cluster: tuple[int, Row | None] | None = None  # the value b is at, and its row of a
        self._joined_at: dict[int, int] = {}  # by bucket: when it was last joined whole
        self._random = Random(self.settings.seed)
        self._clock = 0

    def offer(self, element: Element) -> None:
        self.queues[element.input].append(element)

    def drain(self) -> None:
        """Work until both queues are empty, then purge."""
        while self.step():
            pass

    def step(self) -> bool:
        """One element; False once both queues are empty."""
        chosen = self._choose()
        if chosen != A:
            self._clean_pool()
        if chosen is None:
            self._purge()
            return False
        self.work.switches += chosen != self._driving
        self._driving = chosen
        element = self.queues[chosen].popleft()
        if isinstance(element, End):
            self._punctuation(element.key)
        elif chosen == B:
            self._row_of_b(element)
        elif self.settings.tuples == "value_oriented" and self._unpropagated:
            self._row_of_a_by_value(element)
        else:
            self._row_of_a(element)
        return True

    # Scheduling

    def _choose(self) -> int | None:
        waiting = [side for side in (A, B) if self.queues[side]]
        if not waiting:
            return None
        if len(waiting) == 1:
            side = waiting[0]
        elif self.settings.clustered and self._in_cluster():
            return B
        elif self.settings.streams == "random":
            return self._random.choice((A, B))
        else:
            side = A if self._taken[A] < self.settings.quota[A] else B
        self._taken[side] += 1
        if self._taken[side] >= self.settings.quota[side]:
            self._taken[1 - side] = 0
        return side

    def _in_cluster(self) -> bool:
        """The head of b belongs to a cluster that has its row of a."""
        return (
            self._cluster is not None
            and self._cluster[1] is not None
            and self.queues[B][0].key == self._cluster[0]
        )

    def _row_of_a_by_value(self, row: Row) -> None:
        if row.key in self._unpropagated:
            self._row_of_a(row)
            if not self._unpropagated:
                self._clean_pool()
        else:
            self.pool.append(row)
            self.work.waited += 1

    def _clean_pool(self) -> None:
        while self.pool:
            self._row_of_a(self.pool.popleft())

    # The in-memory stage

    def _row_of_a(self, row: Row) -> None:
        """Procedure stage-mem-a, figure 7."""
        self._clock += 1
        a, b = self.states
        bucket = b.bucket_of(row.key)
        matches = b.probe(row.key)
        for stored in matches:
            self.output.rows.append((row, stored.row))
        if matches:
            bucket.memory = [stored for stored in bucket.memory if stored.row.key != row.key]
            b.in_memory -= len(matches)
            self.work.purged += len(matches)
        if self._cluster is not None and self._cluster[0] == row.key:
            self._cluster = row.key, row
        if row.key in self.punctuated and not bucket.disk:
            self.work.dropped += 1
            self._propagate(row.key)
        else:
            self._insert(a, row)

    def _row_of_b(self, row: Row) -> None:
        self._clock += 1
        if self.settings.clustered and (self._cluster is None or self._cluster[0] != row.key):
            ended, self._cluster = self._cluster, (row.key, None)
            if ended is not None:
                self._punctuation(ended[0])
        found = self._cluster[1] if self._cluster is not None else None
        if found is None:
            matches = self.states[A].probe(row.key)
            found = matches[0].row if matches else None
            if self.settings.clustered:
                self._cluster = row.key, found
        if found is None:
            self._insert(self.states[B], row)
        else:
            self.output.rows.append((found, row))
            self.work.dropped += 1

    def _insert(self, state: HashState, row: Row) -> None:
        state.insert(row, self._clock)
        if self.settings.memory is None or self._in_memory() <= self.settings.memory:
            return
        if self._unpurged:
            self._purge()
        while self._in_memory() > self.settings.memory:
            flush_largest(self.states, self._clock)

    def _in_memory(self) -> int:
        return self.states[A].in_memory + self.states[B].in_memory

    # Punctuations

    def _punctuation(self, key: int) -> None:
        self.punctuated.add(key)
        self._unpurged.add(key)
        self._propagate(key)
        if len(self._unpurged) >= self.settings.purge_every:
            self._purge()

    def _propagate(self, key: int) -> None:
        """The punctuation leaves if no row of b with its key is stored; later rows of a make no results."""
        if not self.settings.propagate:
            return
        bucket = self.states[B].bucket_of(key)
        if self.states[B].probe(key) or any(stored.row.key == key for stored in bucket.disk):
            self._unpropagated.add(key)
        else:
            self._unpropagated.discard(key)
            self.output.ends.append(key)

    def _purge(self) -> None:
        """Scan the state of a for the keys of all unpurged punctuations."""
        if not self._unpurged:
            return
        a, b = self.states
        for bucket, others in zip(a.buckets, b.buckets, strict=True):
            self.work.scanned += len(bucket.memory)
            if others.disk:
                continue  # rows of b on disk may still wait for these
            kept = [stored for stored in bucket.memory if stored.row.key not in self._unpurged]
            a.in_memory -= len(bucket.memory) - len(kept)
            self.work.purged += len(bucket.memory) - len(kept)
            bucket.memory = kept
        self._unpurged.clear()

    # The memory-disk stage and the cleanup stage

    def idle(self) -> bool:
        """While both queues are empty: one bucket that is partly on disk; False if none has anything new."""
        for number in range(self.settings.buckets):
            if self._is_due(number):
                self._join_bucket(number)
                return True
        return False

    def finish(self) -> None:
        """The end of both inputs."""
        self.drain()
        while self.idle():
            pass

    def _is_due(self, number: int) -> bool:
        """Some of the bucket is on disk, and rows came since it was joined whole."""
        buckets = [state.buckets[number] for state in self.states]
        newest = max((rows[-1].came for one in buckets for rows in (one.memory, one.disk) if rows), default=0)
        return any(one.disk for one in buckets) and newest > self._joined_at.get(number, 0)

    def _join_bucket(self, number: int) -> None:
        """Rows of b that find their row of a leave, then rows of a whose key b has ended."""
        a, b = self.states
        ones = {stored.row.key: stored.row for stored in self._whole(a, number)}
        left: list[Stored] = []
        for stored in self._whole(b, number):
            self.work.comparisons += 1
            if stored.row.key in ones:
                self.output.rows.append((ones[stored.row.key], stored.row))
            else:
                left.append(stored)
        kept = [stored for stored in self._whole(a, number) if stored.row.key not in self.punctuated]
        for state, rows in ((a, kept), (b, left)):
            bucket = state.buckets[number]
            disk = [stored for stored in rows if stored.left != NEVER]
            memory = [stored for stored in rows if stored.left == NEVER]
            state.on_disk += len(disk) - len(bucket.disk)
            state.in_memory += len(memory) - len(bucket.memory)
            bucket.memory, bucket.disk = memory, disk
            self.work.pages_written += state.pages(len(disk))
        self._joined_at[number] = self._clock
        for key in sorted(key for key in self._unpropagated if a.number_of(key) == number):
            self._propagate(key)

    def _whole(self, state: HashState, number: int) -> list[Stored]:
        rows = [*state.read_disk(number), *state.buckets[number].memory]
        self.work.scanned += len(rows)
        return rows
