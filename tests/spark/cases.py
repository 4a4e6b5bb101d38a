"""Many small cases in one history: each has its own topic, and every name and value in it is made unique.

Spark takes seconds to plan a history of ten events and hardly longer for one of a thousand, so cases share it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from literal import History


class Case:
    """One case on topic `topic`. Methods as those of `History`, with the defaults of a plain case."""

    def __init__(self, history: History, topic: str) -> None:
        self.h = history
        self.topic = topic

    def name(self, text: str) -> str:
        """A name, process or value of this case."""
        return f"{self.topic}:{text}"

    def send(
        self,
        *values: str,
        at: int | None = None,
        p: int = 0,
        by: str = "p",
        on: str = "A",
        txn: str | None = None,
        client: str | None = None,
        **more: Any,
    ) -> int:
        """Send values at consecutive offsets from `at`; `end` is ok unless said otherwise."""
        if txn is not None:
            txn = self.name(txn)
        named = [self.name(v) for v in values]
        if client is not None:
            more["client"] = self.name(client)
        return self.h.send(self.name(by), on, self.topic, p, *named, offset=at, txn=txn, **more)

    def poll(self, *read: tuple[int, str], p: int = 0, by: str = "c", on: str = "A", **more: Any) -> int:
        """Poll (offset, value) pairs."""
        named = [(o, self.name(v)) for o, v in read]
        return self.h.poll(self.name(by), on, self.topic, p, *named, **more)

    def step(self, f: str, txn: str, *, end: str | None = "ok", by: str = "p", on: str = "A") -> None:
        """txn_begin, txn_commit, txn_abort."""
        self.h.step(self.name(by), f, on, self.name(txn), end=end)

    def whole(
        self,
        *records: tuple[int, int | None, str],
        end: str = "ok",
        read: tuple[tuple[int, int, str], ...] = (),
        by: str = "p",
        **columns: Any,
    ) -> None:
        """A transaction as one operation: (partition, offset, value) sent, and `read` polled within it."""
        sent = [
            {"action": "send", "topic": self.topic, "partition": p, "value": self.name(v), "offset": o}
            for p, o, v in records
        ]
        polled = [
            {"action": "poll", "topic": self.topic, "partition": p, "value": self.name(v), "offset": o}
            for p, o, v in read
        ]
        columns = {"cluster": "A", "isolation": "read_committed", **columns}
        invoke = self.h.event(
            self.name(by), "invoke", "txn", [{**r, "offset": None} for r in sent], phase="load", **columns
        )
        self.h.event(self.name(by), end, "txn", sent + polled, invoke_index=invoke, phase="load", **columns)

    def log(self, *records: Any, p: int = 0, on: str = "A", **more: Any) -> None:
        """A snapshot of a replica's log."""
        named = [(r[0], None if r[1] is None else self.name(r[1]), *r[2:]) for r in records]
        self.h.log(on, self.topic, p, *named, **more)

    def final(self, end: int, *read: tuple[int, str], p: int = 0, on: str = "A", **more: Any) -> None:
        """A complete final read up to `end` that returned these records."""
        isolation = more.get("isolation", "read_uncommitted")
        self.poll(*read, p=p, by=f"final-{isolation}", on=on, phase="final", isolation=isolation)
        self.h.final_read(on, self.topic, p, end, **more)


Make = Callable[[Case], None]


def build(history: History, cases: dict[str, tuple[Make, set[str]]]) -> History:
    """Write every case into the history, each on the topic that is its name."""
    for name, (make, _) in cases.items():
        make(Case(history, name))
    return history
