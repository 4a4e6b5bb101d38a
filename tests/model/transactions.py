"""Transactional producers: commit, abort, unknown outcome, crash and fencing; markers are written one by one."""

from __future__ import annotations

from model.book import Row
from model.logs import Partition, batch, marker
from model.producers import Sender
from model.world import BUSY, IDLE, Actor, Cluster, World

ENDS = ("commit", "commit", "commit", "abort", "unknown", "crash")


class TxnSender(Sender):
    """One transactional id. `steps`: begin, sends and end are separate operations, else one operation `txn`."""

    def __init__(self, world: World, cluster: Cluster, *, steps: bool) -> None:
        self.steps = steps
        self.pepoch = 0
        self.count = 0
        super().__init__(world, cluster, idempotent=True)
        self.pid = cluster.new_pid()

    def replace(self) -> None:
        """A new incarnation of the same transactional id: same producer id, next epoch."""
        pid = getattr(self, "pid", -1)
        super().replace()
        self.pid = pid
        self.pepoch += 1

    def run(self) -> Actor:
        """One transaction after the other until the example's budget is spent."""
        while self.w.budget > 0:
            self.w.budget -= 1
            if self.w.plan.resends and self.w.chance(0.3):
                work = self._work()
                yield from self._transaction("abort", work)
                yield IDLE
                yield from self._transaction("commit", work)  # abort, then do the same again (KIP-98)
            else:
                yield from self._transaction(self.w.rng.choice(ENDS), self._work())
            yield IDLE

    def _work(self) -> list[tuple[Partition, list[tuple[str, str]]]]:
        chosen = [p for p in self.cluster.partitions if self.w.chance(0.7)] or self.cluster.partitions[:1]
        return [(part, self.values(self.w.rng.randint(1, 2))) for part in chosen]

    def _transaction(self, end: str, work: list[tuple[Partition, list[tuple[str, str]]]]) -> Actor:
        txn = f"{self.client}:{self.count}"
        self.count += 1
        chosen = [part for part, _ in work]
        rows: list[Row] = [row for part, pairs in work for row in self.place(part, pairs)]
        whole = 0 if self.steps else self._event("invoke", "txn", txn, rows)
        if self.steps:
            self._step("txn_begin", txn)
        yield BUSY
        told: list[Row] = []
        for part, pairs in work:
            op = self._event("invoke", "send", txn, self.place(part, pairs)) if self.steps else 0
            placed = self._append(part, pairs)
            rows_there = self.place(part, pairs, placed)
            told += rows_there
            yield BUSY
            if self.steps:
                self._event("ok", "send", txn, rows_there, invoke_index=op)
        yield from getattr(self, f"_{end}")(txn, whole, told, chosen)

    def _append(self, part: Partition, pairs: list[tuple[str, str]]) -> int:
        seq = self.next_seq.get(part.number, 0)
        self.next_seq[part.number] = seq + len(pairs)
        columns = {"pid": self.pid, "pepoch": self.pepoch, "seq": seq, "transactional": True}
        placed = part.append(batch(pairs, time_ms=self.w.book.now_ms, **columns))
        part.replicate()
        return placed.base

    def _commit(self, txn: str, whole: int, told: list[Row], parts: list[Partition]) -> Actor:
        end = self._ask("txn_commit", txn)
        yield from self._markers("COMMIT", parts)
        self._answer(end, "ok", "txn_commit", txn, whole, told)

    def _abort(self, txn: str, whole: int, told: list[Row], parts: list[Partition]) -> Actor:
        end = self._ask("txn_abort", txn)
        yield from self._markers("ABORT", parts)
        self._answer(end, "ok" if self.steps else "fail", "txn_abort", txn, whole, told, "aborted")

    def _unknown(self, txn: str, whole: int, told: list[Row], parts: list[Partition]) -> Actor:
        """The commit is requested and never answered; the coordinator may or may not have stored it."""
        end = self._ask("txn_commit", txn)
        yield BUSY
        self._answer(end, "info", "txn_commit", txn, whole, told, "_TIMED_OUT")
        yield from self._markers(self.w.rng.choice(("COMMIT", "ABORT")), parts)
        self._incarnate()

    def _crash(self, txn: str, whole: int, told: list[Row], parts: list[Partition]) -> Actor:
        """The client dies before it requests an end; its next incarnation fences it and aborts the open transaction."""
        if self.steps:
            self._stray(txn, parts[0])
        else:
            self._answer(0, "fail", "txn_abort", txn, whole, told, "_FENCED")
        yield BUSY
        yield from self._markers("ABORT", parts, fencing=True)
        self._incarnate()

    def _stray(self, txn: str, part: Partition) -> None:
        """A delayed send of the dead client. The broker refuses it, because its epoch is fenced by then."""
        pairs = self.values(1)
        op = self._event("invoke", "send", txn, self.place(part, pairs))
        self._event("info", "send", txn, self.place(part, pairs), invoke_index=op, error="_TIMED_OUT")
        seq = self.next_seq.get(part.number, 0)
        columns = {"pid": self.pid, "pepoch": self.pepoch, "seq": seq, "transactional": True}
        self.w.strays.append((self.cluster.letter, part.number, batch(pairs, time_ms=self.w.book.now_ms, **columns)))

    def _incarnate(self) -> None:
        columns = {"cluster": self.cluster.letter, "client": self.client}
        self.w.book.operation(self.process, "crash", error="_FENCED", **columns)
        self.process = self.w.process("p")
        self.replace()

    def leave_open(self) -> Actor:
        """Begin a transaction and die in it; resuming this actor aborts it."""
        part = self.cluster.partitions[0]
        pairs = self.values(2)
        txn = f"{self.client}:{self.count}"
        op = self._event("invoke", "txn", txn, self.place(part, pairs))
        placed = self._append(part, pairs)
        self._event("fail", "txn", txn, self.place(part, pairs, placed), invoke_index=op, error="stopped")
        yield IDLE
        yield from self._markers("ABORT", [part], fencing=True)

    def _markers(self, kind: str, parts: list[Partition], *, fencing: bool = False) -> Actor:
        """One marker per partition. With transaction version 2, and when it fences, it has the next epoch."""
        bumped = self.w.plan.tv2 or fencing
        if bumped:
            self.pepoch += 1
        for part in parts:
            yield BUSY
            self._mark(kind, part)
            if self.w.chance(0.05):  # a new coordinator writes the marker again: it ends nothing
                self.cluster.coordinator_epoch += 1
                self._mark(kind, part)
        if bumped:
            self.next_seq = {}

    def _mark(self, kind: str, part: Partition) -> None:
        coordinator = self.cluster.coordinator_epoch
        part.append(marker(kind, pid=self.pid, pepoch=self.pepoch, coordinator=coordinator, time_ms=self.w.book.now_ms))
        part.replicate()

    def _event(self, type_: str, f: str, txn: str, rows: list[Row], **columns: object) -> int:
        shared = {"cluster": self.cluster.letter, "client": self.client, "txn": txn}
        return self.w.book.event(self.process, type_, f, rows, **shared, **columns)

    def _step(self, f: str, txn: str) -> None:
        self.w.book.operation(self.process, f, cluster=self.cluster.letter, client=self.client, txn=txn)

    def _ask(self, f: str, txn: str) -> int:
        return self._event("invoke", f, txn, []) if self.steps else 0

    def _answer(
        self, end: int, type_: str, f: str, txn: str, whole: int, told: list[Row], error: str | None = None
    ) -> None:
        error = None if type_ == "ok" else error
        if self.steps:
            self._event(type_, f, txn, [], invoke_index=end, error=error)
        else:
            self._event(type_, "txn", txn, told, invoke_index=whole, error=error)
