"""Transactions recorded step by step, as single `:txn` operations in the sense of Jepsen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from harness.history.edn.lines import Operation
from harness.history.ops import OpRecord


@dataclass
class _Open:
    """A transaction under way: its first event, its sends and reads, and an outcome that is not yet certain."""

    first: Operation
    records: list[OpRecord] = field(default_factory=list)
    unsure: Operation | None = None

    def completed(self, by: Operation, outcome: str) -> Operation:
        """The completion: by which event, and as ok, fail or info."""
        first = self.first
        whole = replace(by, f="txn", type=outcome, process=first.process, txn=first.txn, records=self.records)
        return replace(whole, invoke_index=first.index)

    def unknown(self, now: Operation) -> Operation:
        """The completion, at the time of a later event, of a transaction whose outcome is unknown."""
        return self.completed(replace(self.unsure or self.first, time_ns=now.time_ns), "info")


class WholeTransactions:
    """Makes of each event the events of `:txn` operations; those without a transaction, and `txn` operations, stay.

    A transaction whose commit or abort had an unknown outcome is `:info`, unless a later step of the same process
    decides it. One that never ends has no completion.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, _Open] = {}  # transaction → its state
        self._by_process: dict[str, str] = {}  # process → its transaction under way
        self._decided: set[str] = set()
        self._outside: set[int] = set()  # operations under way that were invoked outside transactions
        self._last: Operation | None = None

    def event(self, op: Operation) -> list[Operation]:
        """The resulting events: itself (the same object), or events of a transaction, or nothing yet."""
        self._last = op
        mine = self._by_process.get(op.process)
        txn = op.txn or mine  # a process's operations between begin and decision belong to the transaction
        if txn is None or op.f == "txn" or op.invoke_index in self._outside:
            if op.type == "invoke":
                self._outside.add(op.index)
            else:
                self._outside.discard(-1 if op.invoke_index is None else op.invoke_index)
            return [op]
        events: list[Operation] = []
        if mine is not None and mine != txn:
            del self._by_process[op.process]
            events.append(self._under_way.pop(mine).unknown(op))  # the process went on without an outcome
        if txn not in self._under_way:
            late = txn in self._decided and op.type != "invoke" and op.f != "txn_begin"
            if late or op.f in ("txn_commit", "txn_abort"):
                return events  # already decided
            begun = replace(op, f="txn", type="invoke", txn=txn, records=[])
            self._under_way[txn] = _Open(begun)
            self._by_process[op.process] = txn
            events.append(begun)
        return events if op.type == "invoke" else events + self._step(op, txn)

    def end(self) -> list[Operation]:
        """After the last event: transactions that requested an outcome and got no answer."""
        last = self._last
        return [] if last is None else [o.unknown(last) for o in self._under_way.values() if o.unsure is not None]

    def _step(self, op: Operation, txn: str) -> list[Operation]:
        open_ = self._under_way[txn]
        if op.f not in ("txn_begin", "txn_commit", "txn_abort"):
            if op.type != "fail":  # records of a failed send are not in the transaction
                open_.records.extend(op.records)
        elif op.f != "txn_begin" or op.type != "ok":
            outcome = _outcome(op)
            if outcome != "info":
                del self._under_way[txn], self._by_process[open_.first.process]
                self._decided.add(txn)
                return [open_.completed(op, outcome)]
            open_.unsure = op
        return []


def _outcome(op: Operation) -> str:
    if op.f == "txn_commit":
        return op.type
    if op.f == "txn_begin":
        return "fail" if op.type == "fail" else "info"
    return "fail" if op.type == "ok" else "info"
