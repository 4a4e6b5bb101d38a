"""Transactions recorded step by step, as single `:txn` operations in the sense of Jepsen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from harness.history.edn_lines import Operation
from harness.history.ops import OpRecord


@dataclass
class _Open:
    """A transaction under way: its first event, what was sent and read in it, and an outcome not yet sure."""

    first: Operation
    records: list[OpRecord] = field(default_factory=list)
    unsure: Operation | None = None

    def completed(self, by: Operation, outcome: str) -> Operation:
        """The completion: by which event, and as ok, fail or info."""
        return replace(by, f="txn", type=outcome, process=self.first.process, txn=self.first.txn, records=self.records)

    def unknown(self, now: Operation) -> Operation:
        """The completion, at the time of a later event, of a transaction whose outcome nobody knows."""
        return self.completed(replace(self.unsure or self.first, time_ns=now.time_ns), "info")


def merge_steps(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Events in order, numbered anew from 0; events without a transaction, and `txn` operations, stay as they are.

    A transaction whose commit or abort had an unknown outcome is `:info`, unless a later step of the same process
    decides it. One that never ends has no completion.
    """
    for number, operation in enumerate(_merged(operations)):
        yield replace(operation, index=number)


def _merged(operations: Iterable[Operation]) -> Iterator[Operation]:
    under_way: dict[str, _Open] = {}  # transaction → its state
    by_process: dict[str, str] = {}  # process → its transaction under way
    last: Operation | None = None
    for op in operations:
        last = op
        mine = by_process.get(op.process)
        txn = op.txn or mine  # what a process does between begin and decision belongs to the transaction
        if txn is None or op.f == "txn":
            yield op
            continue
        if mine is not None and mine != txn:
            yield under_way.pop(by_process.pop(op.process)).unknown(op)  # the process went on without an outcome
        if txn not in under_way:
            if op.f in ("txn_commit", "txn_abort"):
                continue  # it was decided already
            under_way[txn] = _Open(op)
            by_process[op.process] = txn
            yield replace(op, f="txn", type="invoke", txn=txn, records=[])
        if op.type == "invoke":
            continue
        open_ = under_way[txn]
        if op.f not in ("txn_begin", "txn_commit", "txn_abort"):
            if op.type != "fail":  # what a failed send carried is not in the transaction
                open_.records.extend(op.records)
        elif op.f != "txn_begin" or op.type != "ok":
            outcome = _outcome(op)
            if outcome == "info":
                open_.unsure = op
                continue
            del under_way[txn], by_process[open_.first.process]
            yield open_.completed(op, outcome)
    if last is not None:
        for open_ in under_way.values():
            if open_.unsure is not None:
                yield open_.unknown(last)


def _outcome(op: Operation) -> str:
    if op.f == "txn_commit":
        return op.type
    if op.f == "txn_begin":
        return "fail" if op.type == "fail" else "info"
    return "fail" if op.type == "ok" else "info"
