"""The state that the actors of one example share: book, partitions, ids, group offsets; and the scheduler.

An actor is a generator. It runs until it yields: `IDLE` between two operations, `BUSY` within one, so that steps of
other actors come between the invocation, the effect and the completion of an operation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Protocol

from model.book import SECOND, SPANS, Book, Row
from model.logs import Batch, Partition
from model.plan import Plan

IDLE, BUSY = True, False
Actor = Iterator[bool]


class Observer(Protocol):
    """Takes snapshots of everything at given times."""

    def until(self, now: int) -> None:
        """Take every snapshot that is due by this time."""


class Looked(Protocol):
    """A mirror whose state can be recorded."""

    states: dict[int, str]

    def look(self, number: int, *, event: str = "look", time_ns: int | None = None) -> Row:
        """One row of `mirror_states`."""


class Lives(Protocol):
    """A topic that is deleted and recreated."""

    @property
    def current(self) -> Cluster:
        """The current life: a cluster with that topic alone."""


class Cluster:
    """One cluster: its partitions by number (one topic), what its groups committed, and its producer ids."""

    def __init__(self, letter: str, topic: str, partitions: list[Partition], *, next_pid: int) -> None:
        self.letter = letter
        self.topic = topic
        self.partitions = partitions
        self.next_pid = next_pid
        self.coordinator_epoch = 0
        self.committed: dict[tuple[str, int], int] = {}
        self.share_starts: dict[tuple[str, int], int] = {}
        self.acls: set[str] = set()
        self.configs: dict[str, str] = {}
        self.up = True

    def new_pid(self) -> int:
        """A producer id of this cluster, never given before."""
        self.next_pid += 1
        return self.next_pid


class World:
    """One example while it runs."""

    def __init__(self, plan: Plan, prefix: str) -> None:
        self.plan = plan
        self.rng = Random(plan.seed)
        self.book = Book(prefix, self.rng)
        topic = self.book.name("t")
        brokers = list(range(1, plan.brokers + 1))
        parts = range(plan.partitions)
        ghost = 100 if plan.mirror == "cluster" else None
        self.a = Cluster("A", topic, [Partition(topic, p, brokers, base=plan.base) for p in parts], next_pid=1000)
        name = f"{topic}-copy" if plan.renamed else topic
        there = [Partition(name, p, brokers, base=plan.base if ghost else 0, ghost=ghost) for p in parts]
        self.b = Cluster("B", name, there, next_pid=1000 if plan.reset_ids else 5000)
        self.names: Counter[str] = Counter()
        self.link = True
        self.cuts: dict[int, int] = {}
        self.later: list[Callable[[], None]] = []
        self.budget = plan.sends
        self.observer: Observer | None = None
        self.failback: Looked | None = None
        self.recreated: Lives | None = None
        self.strays: list[tuple[str, int, Batch]] = []

    @property
    def clusters(self) -> list[Cluster]:
        """A and B, and A again with the topic that is recreated."""
        return [self.a, self.b, *([self.recreated.current] if self.recreated is not None else [])]

    def number(self, kind: str) -> int:
        """The next number of a kind of name, from 0."""
        self.names[kind] += 1
        return self.names[kind] - 1

    def process(self, kind: str) -> str:
        """A new process: `p` for producers, `c` for consumers, `f` for final readers."""
        return self.book.name(f"{kind}{self.number(kind)}")

    def client(self, letter: str, role: str) -> str:
        """A client incarnation, as the recorder names it."""
        return self.book.name(f"{letter}-{role}#{self.number('client')}")

    def chance(self, probability: float) -> bool:
        """Whether it happens this time."""
        return self.rng.random() < probability

    def run(self, actors: list[Actor], *, phase: str, steps: int, drain: bool = True) -> None:
        """Let actors take this many steps, in any order, within a phase; then let each finish its operation."""
        begin, end = next((b, e) for name, b, e in SPANS if name == phase)
        width = (end - begin) * SECOND // (steps + 60)
        self._pass(max(0, begin * SECOND - self.book.now))
        live = list(actors)
        for _ in range(steps):
            if not live:
                break
            self._pass(width // 2 + self.rng.randrange(width // 2))
            self._step(live, self.rng.choice(live))
        for actor in live if drain else ():
            while next(actor, IDLE) is BUSY:
                self._pass(width // 8)
        assert self.book.now < end * SECOND, f"{phase} took too long"

    def _pass(self, nanoseconds: int) -> None:
        if self.observer is not None:
            self.observer.until(self.book.now + nanoseconds)
        self.book.now += nanoseconds

    def _step(self, live: list[Actor], actor: Actor) -> None:
        if self.later and self.chance(0.3):
            self.later.pop(self.rng.randrange(len(self.later)))()
        try:
            next(actor)
        except StopIteration:
            live.remove(actor)

    def settle_late_requests(self) -> None:
        """Requests that are still in flight arrive now."""
        while self.later:
            self.later.pop()()
