"""A correct mirror that keeps offsets: it copies batches, follows the source's log start, and stops at a clean cut.

By `Plan.on_stop` it fetches up to the last stable offset and, at the stop, truncates to where no transaction is open
(`truncate`); or it fetches up to the high watermark and ends open transactions with an ABORT at the cut (`abort`). The
latter waits for the marker of every transaction that the source had committed, so that no outcome differs.
"""

from __future__ import annotations

from model.book import Row
from model.logs import Batch, Partition, marker, open_transactions
from model.world import BUSY, IDLE, Actor, Cluster, World

NAME = "mirror"


class ClusterMirror:
    """The mirror of one example: one topic, every partition with a state of its own."""

    def __init__(self, world: World, source: Cluster, destination: Cluster) -> None:
        self.w = world
        self.source = source
        self.destination = destination
        self.states = dict.fromkeys(range(world.plan.partitions), "PREPARING")
        self.errors: dict[int, str] = {}
        self.stopped = False
        self.dead = False  # for good: it copies nothing more
        self.left = world.rng.randint(0, 6) if world.plan.lagging else 1 << 30

    # -- copying ------------------------------------------------------------------------------------------------------

    def run(self) -> Actor:
        """Fetch some batches of one partition after the other until stopped."""
        while not self.stopped:
            yield IDLE
            for number, state in self.states.items():
                if self._carries(state) and self.left > 0 and self.w.chance(0.7):
                    self.left -= 1
                    self.fetch(number, most=self.w.rng.randint(1, 3))

    def catch_up(self) -> None:
        """Copy everything that is left."""
        for number, state in self.states.items():
            if self._carries(state):
                self.fetch(number, most=1 << 30)

    def _carries(self, state: str) -> bool:
        return state == "MIRRORING" and self.w.link and not self.dead

    def fetch(self, number: int, *, most: int) -> None:
        """Copy up to `most` batches of one partition."""
        a, b = self.source.partitions[number], self.destination.partitions[number]
        b.epoch = max(b.epoch, a.epoch)  # the destination's leader epoch is never lower than the source's
        if a.start > b.end:
            self.errors[number] = f"source log start {a.start} passed {b.end}: a gap of expired records"
            self.look(number)
            b.restart_at(a.start)
        self._reconcile(a, b)
        limit = a.lso if self.w.plan.on_stop == "truncate" else a.hw
        due = [x for x in a.log.batches if x.base >= b.end and x.last < limit]
        for x in due[:most]:
            b.copy_in(x, x.epoch)
        b.replicate()

    def refresh(self) -> None:
        """Truncate what A lost in elections."""
        if self.w.plan.unclean:
            for a, b in zip(self.source.partitions, self.destination.partitions, strict=True):
                self._reconcile(a, b)

    def _reconcile(self, a: Partition, b: Partition) -> None:
        """Truncate what the source no longer has because it elected a leader that was not in sync."""
        held = {(x.base, x.crc) for x in a.log.batches}
        strange = [x.base for x in b.log.batches if x.base >= a.start and (x.base, x.crc) not in held]
        if strange and self.w.plan.unclean:
            b.elect(b.leader)
            b.truncate(min(strange))

    # -- states -------------------------------------------------------------------------------------------------------

    def move(self, number: int, state: str, event: str | None = None) -> None:
        """Go to another state because of an operation (event), or by itself."""
        self.states[number] = state
        if event is not None:
            self.look(number, event=event)

    def look(self, number: int, *, event: str = "look", time_ns: int | None = None) -> Row:
        """One row of `mirror_states`. An unknown lag is null."""
        a, b = self.source.partitions[number], self.destination.partitions[number]
        state = self.states[number]
        known = self._carries(state)
        cut = self.w.cuts.get(number) if state == "STOPPED" else None
        return self.w.book.row(
            "mirror_states",
            mirror=self.w.book.name(NAME),
            cluster=self.destination.letter,
            topic=b.topic,
            partition=number,
            state=state,
            source_offset=b.end if cut is None else cut,
            destination_offset=b.end if cut is None else cut,
            lag=max(0, a.hw - b.end) if known else None,
            error=self.errors.pop(number, None),
            event=event,
            time_ns=self.w.book.now if time_ns is None else time_ns,
        )

    def start(self) -> None:
        """Begin to mirror."""
        op = self._ask("mirror_start")
        for number in self.states:
            self.move(number, "PREPARING", "start")
        self.w.book.tick()
        for number in self.states:
            self.move(number, "MIRRORING", "start")
        self._answer("mirror_start", op)

    def pause(self) -> Actor:
        """Pause one partition for a while, then resume it; a pause that comes too late is refused."""
        number = self.w.rng.choice(sorted(self.states))
        yield IDLE
        if self.states[number] != "MIRRORING":
            self._answer("mirror_pause", self._ask("mirror_pause", number), number, error="INVALID_STATE")
            return
        op = self._ask("mirror_pause", number)
        self.move(number, "PAUSING", "pause")
        yield BUSY
        self.w.book.tick()
        self.move(number, "PAUSED", "pause")
        self._answer("mirror_pause", op, number)
        for _ in range(self.w.rng.randint(1, 6)):
            yield BUSY
        op = self._ask("mirror_resume", number)
        self.w.book.tick()
        self.move(number, "MIRRORING", "resume")
        self._answer("mirror_resume", op, number)

    # -- the stop -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Failover: every partition ends at a cut, and a real broker of B leads it."""
        op = self._ask("mirror_stop")
        for number in self.states:
            self.move(number, "STOPPING", "stop")
        for number, part in enumerate(self.destination.partitions):
            self.w.book.tick()
            if self.w.plan.on_stop == "abort":
                self._finish_committed(number)
            self._hand_over(part)
            self.w.cuts[number] = self._cut(part)
            if self.w.plan.reset_ids:
                part.append(marker("PID_RESET", pid=-1, pepoch=-1, coordinator=0, time_ms=self.w.book.now_ms))
            part.replicate()
            self.move(number, "STOPPED", "stop")
        self._answer("mirror_stop", op)
        self.stopped = True

    def _finish_committed(self, number: int) -> None:
        a, b = self.source.partitions[number], self.destination.partitions[number]
        open_there = open_transactions(a.log.batches)
        while any(pid not in open_there for pid in open_transactions(b.log.batches)):
            self.fetch(number, most=1)

    def _hand_over(self, part: Partition) -> None:
        """A real broker leads from now on, under a higher epoch than any mirrored batch's."""
        part.replicate()
        part.elect(min(part.isr - {part.ghost or 0}))
        if part.ghost is not None:
            part.isr.discard(part.ghost)
            del part.replicas[part.ghost]
            part.ghost = None

    def _cut(self, part: Partition) -> int:
        open_ = open_transactions(part.log.batches)
        if self.w.plan.on_stop == "truncate":
            while open_:
                part.truncate(min(b.base for b in open_.values()))
                open_ = open_transactions(part.log.batches)
            return part.end
        cut = part.end
        for b in open_.values():
            part.append(self._abort(part, b))
        return cut

    def _abort(self, part: Partition, data: Batch) -> Batch:
        coordinators = [b.coordinator for b in part.log.batches if b.pid == data.pid and b.coordinator is not None]
        return marker(
            "ABORT",
            pid=data.pid,
            pepoch=data.pepoch,
            coordinator=max(coordinators, default=0),
            time_ms=self.w.book.now_ms,
        )

    # -- operations ---------------------------------------------------------------------------------------------------

    def _targets(self, number: int | None) -> list[Row]:
        chosen = self.states if number is None else [number]
        return [{"action": "target", "topic": self.destination.topic, "partition": n} for n in chosen]

    def _ask(self, f: str, number: int | None = None) -> int:
        return self.w.book.event(
            self.w.book.name("admin"), "invoke", f, self._targets(number), cluster=self.destination.letter
        )

    def _answer(self, f: str, op: int, number: int | None = None, *, error: str | None = None) -> None:
        end = {"invoke_index": op, "cluster": self.destination.letter, "error": error}
        self.w.book.event(self.w.book.name("admin"), "fail" if error else "ok", f, self._targets(number), **end)
