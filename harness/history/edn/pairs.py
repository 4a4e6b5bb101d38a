"""Events as Jepsen's histories require them: a process invokes, then completes, and only then invokes again.

A stored history may hold concurrent operations of one process (Kafka clients do that), completions without an
invocation (an imported history often states only outcomes), several completions of one operation, and
operations that never completed although their process went on.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from harness.history.edn.lines import Operation
from harness.history.pairing import Pairing

_TO_BE_KNOWN_BY: Final = ("send", "commit")


@dataclass(frozen=True, slots=True)
class Put:
    """One event for Jepsen, and its lane: which of the Jepsen processes that stand for its process."""

    operation: Operation
    lane: int = 0


def is_paired(events: Iterable[tuple[int, str, str, int | None]]) -> bool:
    """Whether (index, process, type, invoke_index) events, in order, are already of that form."""
    under_way: dict[str, int] = {}
    for index, process, type_, invoked in events:
        if (type_ == "invoke") == (process in under_way):
            return False
        if type_ == "invoke":
            under_way[process] = index
        elif invoked not in (None, under_way.pop(process)):
            return False
    return True


def resolved(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The events; on a completion that does not name its invoke, the one that `Pairing` finds."""
    pairing = Pairing()
    for op in operations:
        if op.invoke_index is None:
            first = next((r for r in op.records if r.action in _TO_BE_KNOWN_BY), None)
            what = (
                None
                if first is None
                else (first.topic, first.partition, first.offset)
                if first.value is None
                else first.value
            )
            if op.type == "invoke":
                pairing.invoked(op.index, op.process, op.f, what)
            else:
                op = replace(op, invoke_index=pairing.completed(op.index, op.process, op.f, what))
        yield op


class Completions:
    """Which operations of a history complete at all, and which end both ok and fail."""

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        every = {"ok": array("q"), "fail": array("q"), "info": array("q")}
        for op in operations:
            if op.invoke_index is not None and op.type in every:
                every[op.type].append(op.invoke_index)
        failed = set(every["fail"])
        self._both = {index for index in every["ok"] if index in failed}
        self._all = sorted({*every["ok"], *failed, *every["info"]})

    def completes(self, invoked: int) -> bool:
        """Whether the operation that was invoked there has a completion."""
        at = bisect_left(self._all, invoked)
        return at < len(self._all) and self._all[at] == invoked

    def contradict(self, invoked: int | None) -> bool:
        """Whether one completion of the operation says that it happened, and another that it did not."""
        return invoked in self._both


class Pairs:
    """Turns each event into Jepsen's events, in order.

    A concurrent operation has its own lane. One that never completes ends as `info` where its
    process goes on; a completion without an invocation gets one just before it. So does a second completion:
    the same sends again, as Jepsen would see a retry; where it contradicts the first, the operation is `info`.
    """

    def __init__(self, completions: Completions, *, steps: bool) -> None:
        self._completions = completions
        self._steps = steps  # `txn` operations were built from steps, and complete when these do
        self._under_way: dict[str, dict[int, Put]] = {}

    def event(self, op: Operation) -> list[Put]:
        """Jepsen's events for it: the event itself (the same object), or others in its place, or nothing."""
        mine = self._under_way.setdefault(op.process, {})
        over = [index for index, put in mine.items() if not self._lasts(index, put.operation)]
        ended = [self._ended(mine.pop(index), op) for index in over]
        if op.type == "invoke":
            mine[op.index] = Put(op, _free(mine))
            return [*ended, mine[op.index]]
        begun = None if op.invoke_index is None else mine.pop(op.invoke_index, None)
        contrary = self._completions.contradict(op.invoke_index)
        if begun is not None:
            return [*ended, Put(replace(op, type="info") if contrary else op, begun.lane)]
        if contrary and op.invoke_index != op.index:
            return ended
        lane = _free(mine)
        return [*ended, Put(_invocation(op), lane), Put(op, lane)]

    def _lasts(self, index: int, op: Operation) -> bool:
        return (self._steps and op.f == "txn") or self._completions.completes(index)

    @staticmethod
    def _ended(put: Put, now: Operation) -> Put:
        return Put(replace(put.operation, type="info", time_ns=now.time_ns), put.lane)


def _free(mine: dict[int, Put]) -> int:
    taken = {put.lane for put in mine.values()}
    return next(lane for lane in range(len(taken) + 1) if lane not in taken)


def _invocation(op: Operation) -> Operation:
    """The invocation that a completion must have had: its sends without offsets, and nothing read yet."""
    asked = [
        r._replace(offset=None) if r.action == "send" else r
        for r in op.records
        if r.action not in ("poll", "rebalance", "position")
    ]
    return replace(op, type="invoke", error=None, error_text=None, records=asked)
