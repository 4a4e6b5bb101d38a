"""A topic of A that is deleted and recreated while clients use it: operations that overlap the deletion may be of
either life (incarnation) of the topic.

A deletion may fail first. A broker may be down all the time and keep the old topic's log, with its id. The topic is not
mirrored. The response to a deletion does not end the old topic at once: a broker that has not heard of it continues to
acknowledge writes (seen on Kafka 4.3.1), so pending operations complete whenever they do.
"""

from __future__ import annotations

from model.book import Row
from model.consumers import Reader, poll_rows
from model.logs import Partition
from model.producers import Sender
from model.world import BUSY, IDLE, Actor, Cluster, World


class Recreated:
    """lives: the topic's lives so far, each a cluster of its own with that topic alone; the last one is current."""

    def __init__(self, world: World) -> None:
        self.w = world
        self.topic = world.book.name("again")
        self.down: int | None = None
        self.lives = [self._life()]

    def _life(self) -> Cluster:
        number = self.w.number("life")
        part = Partition(self.topic, 0, list(range(1, self.w.plan.brokers + 1)))
        part.topic_id = f"id {number} of {self.topic}"
        return Cluster("A", self.topic, [part], next_pid=9000 + 100 * number)

    @property
    def current(self) -> Cluster:
        """The current life."""
        return self.lives[-1]

    def run(self) -> Actor:
        """Use the topic, delete it with operations pending, recreate it, use it."""
        self._create()
        yield IDLE
        for _ in range(self.w.rng.randint(1, 2)):
            yield from self._use()
            yield from self._delete_and_create()
        yield from self._use()

    def _use(self) -> Actor:
        life = self.current
        sender = Sender(self.w, life, idempotent=self.w.chance(0.5))
        for _ in range(self.w.rng.randint(1, 3)):
            yield from sender._ok(life.partitions[0], sender.values(self.w.rng.randint(1, 2)))
            yield IDLE
        yield from self._read(life, under_way=False)

    def _read(self, life: Cluster, *, under_way: bool) -> Actor:
        """A fresh reader polls from the start; with `under_way` the poll completes after the topic is recreated."""
        reader = Reader(self.w, life, committed=False)
        reader.open(reader.starts())
        op = self.w.book.event(reader.process, "invoke", "poll", **reader.columns)
        rows, _ = poll_rows(life.partitions[0], 0, 1 << 30, committed=False)
        yield BUSY
        while under_way and life is self.current:
            yield BUSY
        self.w.book.event(reader.process, "ok", "poll", rows, invoke_index=op, **reader.columns)

    def _delete_and_create(self) -> Actor:
        old = self.current
        part = old.partitions[0]
        if self.w.chance(0.25):
            yield from self._try_in_vain()
        if self.down is None and self.w.chance(0.25):
            self.down = self.w.plan.brokers
            part.leave(self.down)
        straddling = [self._read(old, under_way=True) for _ in range(self.w.rng.randint(0, 2))]
        for poll in straddling:
            next(poll)
        sends: list[tuple[Sender, int, list[tuple[str, str]]]] = []
        for _ in range(self.w.rng.randint(0, 2)):
            sender = Sender(self.w, old, idempotent=False)
            pairs = sender.values(1)
            sends.append((sender, sender._begin(part, pairs), pairs))
        op = self._ask("delete_topic")
        yield BUSY
        placed: list[tuple[Sender, int, list[Row]]] = []
        for sender, begun, pairs in sends:
            base = part.append(sender.request(part, pairs)).base
            part.replicate()
            placed.append((sender, begun, sender.place(part, pairs, base)))
            if self.w.chance(0.4):
                self._ack(*placed.pop())
                yield BUSY
        self._answer(op, "delete_topic", "info" if self.w.chance(0.3) else "ok")
        yield BUSY
        if self.w.chance(0.4):
            while placed:
                self._ack(*placed.pop(0))
        new = self._life()
        if self.down is not None:
            self._keep_down(self.down, part, new.partitions[0])
        self._create(new)
        yield BUSY
        while placed:
            self._ack(*placed.pop(0))
        for poll in straddling:
            for _ in poll:
                yield BUSY

    def _try_in_vain(self) -> Actor:
        """A deletion of unknown outcome that never takes effect; clients continue."""
        op = self._ask("delete_topic")
        yield BUSY
        if self.w.chance(0.5):
            for _ in self._use():
                yield BUSY
        self._answer(op, "delete_topic", "info")
        yield IDLE
        yield from self._use()

    @staticmethod
    def _keep_down(broker: int, old: Partition, new: Partition) -> None:
        new.leave(broker)
        new.replicas[broker] = old.replicas[broker]
        new.strays[broker] = old.strays.get(broker, old.topic_id)

    def _ack(self, sender: Sender, op: int, rows: list[Row]) -> None:
        sender._end(op, "ok", rows)

    def _create(self, new: Cluster | None = None) -> None:
        op = self._ask("create_topic")
        if new is not None:
            self.lives.append(new)
        self._answer(op, "create_topic", "ok")

    @property
    def _target(self) -> list[Row]:
        return [{"action": "target", "topic": self.topic}]

    def _ask(self, f: str) -> int:
        return self.w.book.event(self.w.book.name("admin-a"), "invoke", f, self._target, cluster="A")

    def _answer(self, op: int, f: str, type_: str) -> None:
        error = "_TIMED_OUT" if type_ == "info" else None
        end = {"invoke_index": op, "cluster": "A", "error": error}
        self.w.book.event(self.w.book.name("admin-a"), type_, f, self._target, **end)
