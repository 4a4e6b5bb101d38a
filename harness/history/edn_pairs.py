"""Events as Jepsen's histories want them: a process invokes, then completes, and only then invokes again.

A stored history may hold completions that nobody invoked (an imported history often tells only what came out), two
completions of one operation, and operations that never completed although their process went on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from harness.history.edn_lines import Operation


def is_paired(events: Iterable[tuple[str, str]]) -> bool:
    """Whether (process, type) events, in order, are already of that form."""
    under_way: set[str] = set()
    for process, type_ in events:
        if (type_ == "invoke") == (process in under_way):
            return False
        if type_ == "invoke":
            under_way.add(process)
        else:
            under_way.remove(process)
    return True


def paired(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The events with what is missing between them, numbered anew from 0.

    An operation that never completed ends as `info` where its process goes on; a completion without an invocation gets
    one just before it. A second completion is one of these: the same sends again, as Jepsen would see a retry.
    """
    for number, operation in enumerate(_whole(operations)):
        yield replace(operation, index=number)


def _whole(operations: Iterable[Operation]) -> Iterator[Operation]:
    under_way: dict[str, Operation] = {}
    for op in operations:
        begun = under_way.pop(op.process, None)
        if op.type == "invoke":
            if begun is not None:
                yield replace(begun, type="info", time_ns=op.time_ns)
            under_way[op.process] = op
        elif begun is None or begun.f != op.f:
            if begun is not None:
                yield replace(begun, type="info", time_ns=op.time_ns)
            yield _invocation(op)
        yield op


def _invocation(op: Operation) -> Operation:
    """What a completion must have begun as: its sends without offsets, and nothing read yet."""
    asked = [
        r._replace(offset=None) if r.action == "send" else r
        for r in op.records
        if r.action not in ("poll", "rebalance")
    ]
    return replace(op, type="invoke", error=None, error_text=None, records=asked)
