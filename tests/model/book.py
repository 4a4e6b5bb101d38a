"""The tables of one example: rows of a run's tables on the run's common clock, and events with indices of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from harness.history.ops import Phase
from harness.history.schema import TABLES

Row = dict[str, Any]
Rows = dict[str, list[Row]]
SECOND = 1_000_000_000
EPOCH_MS = 1_760_000_000_000
SPANS: tuple[tuple[Phase, int, int], ...] = (
    (Phase.WARM_UP, 0, 5),
    (Phase.LOAD, 5, 45),
    (Phase.HEAL, 45, 47),
    (Phase.SETTLE, 47, 55),
    (Phase.SCENARIO, 55, 70),
    (Phase.FINAL, 70, 80),
    (Phase.EVIDENCE, 80, 85),
)
"""Phase, first and last second. The same for all examples, because they are stored as one run."""
COLUMNS = {name: frozenset(c.name for c in table.columns) for name, table in TABLES.items()}


@dataclass
class Book:
    """The tables of one example. Every name in it begins with `prefix`, so that an anomaly names its example."""

    prefix: str
    rng: Random
    now: int = 0
    before: Callable[[int], None] = field(default=lambda _now: None, repr=False)
    tables: Rows = field(default_factory=lambda: defaultdict(list))
    _index: int = -1

    def tick(self, most_ns: int = 400_000) -> int:
        """Advance the clock a little and return the new time; `before` is called with that time first."""
        later = self.now + self.rng.randint(1_000, most_ns)
        self.before(later)
        self.now = later
        return self.now

    def name(self, text: str) -> str:
        """A name that belongs to this example."""
        return self.prefix + text

    @property
    def now_ms(self) -> int:
        """The time as batches store it."""
        return EPOCH_MS + self.now // 1_000_000

    @property
    def phase(self) -> str:
        """The current phase."""
        second = self.now / SECOND
        return str(next(name for name, _, end in SPANS if second < end))

    def row(self, table: str, **columns: Any) -> Row:
        """One row of any table."""
        if "time_ns" in COLUMNS[table]:
            columns.setdefault("time_ns", self.now)
        assert columns.keys() <= COLUMNS[table], columns.keys() - COLUMNS[table]
        self.tables[table].append(columns)
        return columns

    def event(self, process: str, type_: str, f: str, records: Iterable[Row] = (), **columns: Any) -> int:
        """One event with its records; its index."""
        self.tick()
        self._index += 1
        self.row("ops", index=self._index, process=process, type=type_, f=f, phase=self.phase, **columns)
        for position, record in enumerate(records):
            self.row("op_records", op_index=self._index, position=position, **record)
        return self._index

    def operation(
        self, process: str, f: str, records: Iterable[Row] = (), *, end: str = "ok", error: str | None = None, **c: Any
    ) -> int:
        """Invocation and completion with nothing in between; the index of the completion."""
        kept = list(records)
        invoke = self.event(process, "invoke", f, kept, **c)
        return self.event(process, end, f, kept, invoke_index=invoke, error=error, **c)
