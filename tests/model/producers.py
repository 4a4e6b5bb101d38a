"""Producers without transactions: sends that are acknowledged, refused, of unknown outcome, late, or never sent."""

from __future__ import annotations

from functools import partial

from model.book import Row
from model.logs import Batch, Partition, batch
from model.world import BUSY, IDLE, Actor, Cluster, World

ENDS = ("ok", "ok", "ok", "ok", "ok", "refused", "unknown", "late", "never", "partly")
RESENDS = ("refused_then_sent", "refused_then_sent", "doubled")
KEYS = ("k0", "k1", "k2")


class Sender:
    """One client of one process at a time. `idempotent`: with producer id and sequences."""

    def __init__(self, world: World, cluster: Cluster, *, idempotent: bool) -> None:
        self.w = world
        self.cluster = cluster
        self.idempotent = idempotent
        self.process = world.process("p")
        self.replace()

    def replace(self) -> None:
        """A new client: new name, new producer id."""
        self.client = self.w.client(self.cluster.letter, "producer")
        self.pid = self.cluster.new_pid() if self.idempotent else -1
        self.next_seq: dict[int, int] = {}
        self.placed: list[tuple[Partition, Batch]] = []
        self.sent = 0

    def values(self, count: int) -> list[tuple[str, str]]:
        """Fresh (key, value) pairs."""
        found = []
        for _ in range(count):
            name = self.client.removeprefix(self.w.book.prefix)
            value = self.w.book.name(f"{name}:{self.process.removeprefix(self.w.book.prefix)}:{self.sent}")
            found.append((self.w.rng.choice(KEYS), value))
            self.sent += 1
        return found

    def place(self, part: Partition, pairs: list[tuple[str, str]], offset: int | None = None) -> list[Row]:
        """Rows of `op_records` for these pairs, at consecutive offsets where known."""
        rows: list[Row] = []
        for i, (key, value) in enumerate(pairs):
            known = {} if offset is None else {"offset": offset + i}
            place = {"action": "send", "topic": part.topic, "partition": part.number}
            rows.append({**place, "value": value, "key": key, **known})
        return rows

    def request(self, part: Partition, pairs: list[tuple[str, str]]) -> Batch:
        """The batch that the client sends."""
        seq = -1
        if self.idempotent:
            seq = self.next_seq.get(part.number, 0)
            self.next_seq[part.number] = seq + len(pairs)
        pepoch = 0 if self.idempotent else -1
        return batch(pairs, pid=self.pid, pepoch=pepoch, seq=seq, time_ms=self.w.book.now_ms)

    def run(self) -> Actor:
        """Send until the example's budget is spent."""
        while self.w.budget > 0:
            self.w.budget -= 1
            part = self.w.rng.choice(self.cluster.partitions)
            if self._robbed():
                self._gone("OUT_OF_ORDER_SEQUENCE_NUMBER")
            yield from getattr(self, f"_{self._choose()}")(part, self.values(self.w.rng.randint(1, 3)))
            yield IDLE

    def _choose(self) -> str:
        plan = self.w.plan
        if plan.pipelined and self.w.chance(0.4):
            return "pipelined"
        return self.w.rng.choice(ENDS + RESENDS if plan.resends else ENDS)

    def _begin(self, part: Partition, pairs: list[tuple[str, str]]) -> int:
        columns = {"cluster": self.cluster.letter, "client": self.client}
        return self.w.book.event(self.process, "invoke", "send", self.place(part, pairs), **columns)

    def _end(self, op: int, type_: str, rows: list[Row], error: str | None = None) -> None:
        columns = {"cluster": self.cluster.letter, "client": self.client, "error": error}
        self.w.book.event(self.process, type_, "send", rows, invoke_index=op, **columns)

    def _gone(self, error: str) -> None:
        """The client is replaced, and its process continues under another name."""
        columns = {"cluster": self.cluster.letter, "client": self.client}
        self.w.book.operation(self.process, "crash", error=error, **columns)
        self.process = self.w.process("p")
        self.replace()

    def _robbed(self) -> bool:
        """Whether an unclean election discarded one of its batches: brokers then refuse its next sequences."""
        return self.idempotent and not all(part.holds(b) for part, b in self.placed)

    def _out_of_order(self, op: int, part: Partition, pairs: list[tuple[str, str]]) -> None:
        self._end(op, "fail", self.place(part, pairs), "OUT_OF_ORDER_SEQUENCE_NUMBER")
        self._gone("OUT_OF_ORDER_SEQUENCE_NUMBER")

    def _ok(self, part: Partition, pairs: list[tuple[str, str]]) -> Actor:
        op = self._begin(part, pairs)
        yield BUSY
        if self._robbed():
            self._out_of_order(op, part, pairs)
            return
        request = self.request(part, pairs)
        placed = part.append(request)
        yield BUSY
        part.replicate()
        if not part.holds(placed) and self._robbed():
            self._out_of_order(op, part, pairs)
            return
        if not part.holds(placed):  # an election discarded it; the client retries
            placed = part.append(request)
            part.replicate()
        self.placed.append((part, placed))
        # To a duplicate retry, the broker may answer without the offset.
        told = None if self.idempotent and self.w.chance(0.05) else placed.base
        yield BUSY
        self._end(op, "ok", self.place(part, pairs, told))

    def _refused(self, part: Partition, pairs: list[tuple[str, str]]) -> Actor:
        op = self._begin(part, pairs)
        yield BUSY
        self._end(op, "fail", self.place(part, pairs), "NOT_ENOUGH_REPLICAS")

    def _refused_then_sent(self, part: Partition, pairs: list[tuple[str, str]]) -> Actor:
        """Definitely failed; the application sends the same values again, maybe to another partition."""
        yield from self._refused(part, pairs)
        yield BUSY
        yield from self._ok(self.w.rng.choice(self.cluster.partitions), pairs)

    def _doubled(self, part: Partition, pairs: list[tuple[str, str]]) -> Actor:
        """Without idempotence: the response is lost, and the application sends the same values again."""
        if self.idempotent:
            yield from self._ok(part, pairs)
            return
        op = self._begin(part, pairs)
        yield BUSY
        if self.w.chance(0.7):
            part.append(self.request(part, pairs))
            part.replicate()
        self._end(op, "info", self.place(part, pairs), "_TIMED_OUT")
        yield BUSY
        yield from self._ok(part, pairs)

    def _pipelined(self, part: Partition, pairs: list[tuple[str, str]]) -> Actor:
        """Several sends in flight: appended in the order in which they were invoked, acknowledged in any order."""
        under_way = [(self._begin(part, pairs), part, pairs)]
        for _ in range(self.w.rng.randint(1, 3)):
            other, more = self.w.rng.choice(self.cluster.partitions), self.values(self.w.rng.randint(1, 2))
            under_way.append((self._begin(other, more), other, more))
            yield BUSY
        if self._robbed():
            for op, there, values in under_way:
                self._end(op, "fail", self.place(there, values), "OUT_OF_ORDER_SEQUENCE_NUMBER")
            self._gone("OUT_OF_ORDER_SEQUENCE_NUMBER")
            return
        answers = []
        for op, there, values in under_way:
            placed = there.append(self.request(there, values))
            there.replicate()
            self.placed.append((there, placed))
            answers.append((op, self.place(there, values, placed.base)))
        yield BUSY
        self.w.rng.shuffle(answers)
        for op, rows in answers:
            self._end(op, "ok", rows)
            yield BUSY

    def _unknown(self, part: Partition, pairs: list[tuple[str, str]]) -> Actor:
        """Appended, and an election may discard it; the client gets no response."""
        op = self._begin(part, pairs)
        yield BUSY
        if not self._robbed():
            part.append(self.request(part, pairs))
        yield BUSY
        self._end(op, "info", self.place(part, pairs), "_TIMED_OUT")
        self._gone("_TIMED_OUT")

    def _late(self, part: Partition, pairs: list[tuple[str, str]]) -> Actor:
        """The request arrives after the client has given up."""
        op = self._begin(part, pairs)
        yield BUSY
        request = self.request(part, pairs)
        self.w.later.append(partial(self._arrive, part, request, self.placed))
        self._end(op, "info", self.place(part, pairs), "_TIMED_OUT")
        self._gone("_TIMED_OUT")

    @staticmethod
    def _arrive(part: Partition, request: Batch, before: list[tuple[Partition, Batch]]) -> None:
        if request.pid < 0 or all(p.holds(b) for p, b in before):
            part.append(request)
            part.replicate()

    def _never(self, part: Partition, pairs: list[tuple[str, str]]) -> Actor:
        op = self._begin(part, pairs)
        yield BUSY
        self._end(op, "info", self.place(part, pairs), "_TRANSPORT")
        self._gone("_TRANSPORT")

    def _partly(self, part: Partition, pairs: list[tuple[str, str]]) -> Actor:
        """Two requests; the first is acknowledged, the second gets no response. Kafka acknowledges records."""
        op = self._begin(part, pairs)
        yield BUSY
        if self._robbed():
            self._out_of_order(op, part, pairs)
            return
        placed = part.append(self.request(part, pairs[:1]))
        part.replicate()
        assert part.holds(placed)
        self.placed.append((part, placed))
        rows = self.place(part, pairs[:1], placed.base)
        if pairs[1:]:
            yield BUSY
            if self.w.chance(0.5) and not self._robbed():
                part.append(self.request(part, pairs[1:]))
            self._end(op, "info", rows + self.place(part, pairs[1:]), "_TIMED_OUT")
            self._gone("_TIMED_OUT")
        else:
            self._end(op, "ok", rows)
