"""Many literal histories in one run: each case has its own topic, all are judged by all log checkers at once.

A case is a function that writes its history through a `Case` and returns exactly what must be found, of any kind.
Starting Spark jobs costs far more than rows do, so a group of cases costs about as much as one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from literal import History
from pyspark.sql import SparkSession

from checkers.base import ANOMALY_COLUMNS, union
from checkers.catalogue import CHECKERS
from checkers.views.tables import Tables

LOG_CHECKERS = [c for c in CHECKERS.values() if {k.section for k in c.kinds} <= {2, 3}]
Found = tuple[Any, ...]  # (kind, offset, value) or (kind, cluster, partition, offset, value)
SETTLED: dict[str, Any] = {
    "source": "shatter",
    "clusters": {"A": {}, "B": {}},
    "phases": [{"name": "settle", "start_ns": 0}],
}


def contract(name: str, **test: Any) -> dict[str, Any]:
    """Metadata of a run that is judged by this contract."""
    return {"test": {"contract": name, **test}}


class Case:
    """The calls of `History` with the case's topic filled in, and values and transactions made unique by its name."""

    def __init__(self, history: History, topic: str) -> None:
        self.history = history
        self.topic = topic

    def name(self, text: str | None) -> str | None:
        """A value or transaction name as it is stored."""
        return None if text is None else f"{self.topic}/{text}"

    def log(self, cluster: str, *records: tuple[Any, ...], partition: int = 0, **columns: Any) -> None:
        """One replica's log: (offset, value) or (offset, value, other columns)."""
        mapped = []
        for offset, value, *rest in records:
            extra = dict(rest[0]) if rest else {}
            if "txn" in extra:
                extra["txn"] = self.name(extra["txn"])
            mapped.append((offset, self.name(value), extra))
        self.history.log(cluster, self.topic, partition, *mapped, **columns)

    def send(self, cluster: str, *values: str, process: str = "p", partition: int = 0, **columns: Any) -> None:
        """Values sent to a cluster, acknowledged at consecutive offsets from `offset`."""
        names = [f"{self.topic}/{v}" for v in values]
        if "txn" in columns:
            columns["txn"] = self.name(columns["txn"])
        self.history.send(f"{process}@{self.topic}", cluster, self.topic, partition, *names, **columns)

    def end(self, step: str, cluster: str, txn: str) -> None:
        """A transaction's txn_commit or txn_abort, acknowledged."""
        self.history.step("p", step, cluster, f"{self.topic}/{txn}")

    def state(self, state: str, source: int | None = None, destination: int | None = None, **columns: Any) -> None:
        """A state of the mirror to B."""
        place = {"cluster": "B", "topic": self.topic, "partition": 0, **columns}
        self.history.row("mirror_states", state=state, source_offset=source, destination_offset=destination, **place)

    def row(self, table: str, **columns: Any) -> None:
        """A row of any table, with the case's topic."""
        self.history.row(table, topic=self.topic, **columns)


CaseFunction = Callable[[Case], list[Found]]


class Group:
    """Cases that share a run's metadata."""

    def __init__(self, name: str, **meta: Any) -> None:
        self.name = name
        self.meta = meta
        self.cases: dict[str, CaseFunction] = {}
        self._results: dict[str, tuple[list[Found], list[dict[str, Any]]]] = {}
        self._ran = False

    def case(self, function: CaseFunction) -> CaseFunction:
        """Add a case; its name is the function's."""
        self.cases[function.__name__] = function
        return function

    def check(self, name: str, spark: SparkSession, folder: Path) -> None:
        """Assert that exactly the case's expected anomalies were found."""
        if not self._ran:
            self._ran = True  # also when it fails: the other cases would only fail again
            self._results = self._run(spark, folder / self.name)
        assert name in self._results, "the group's first case failed"
        expected, rows = self._results[name]
        wide = any(len(e) == 5 for e in expected)
        found = [
            (r["kind"], r["cluster"], r["partition"], r["offset"], r["value"])
            if wide
            else (r["kind"], r["offset"], r["value"])
            for r in rows
        ]
        words = "\n".join(f"  {r['kind']}: {r['explain']}" for r in rows)
        assert sorted(found, key=repr) == sorted(expected, key=repr), f"found:\n{words}"

    def _run(self, spark: SparkSession, folder: Path) -> dict[str, tuple[list[Found], list[dict[str, Any]]]]:
        history = History(**{"topic_map": {name: name for name in self.cases}, **self.meta})
        expected = {name: function(Case(history, name)) for name, function in self.cases.items()}
        tables = Tables.open(history.write(folder), spark)
        try:
            frames = [
                c.check(tables) for c in LOG_CHECKERS if all(tables.has(r) for k in c.kinds[:1] for r in k.requires)
            ]
            frame = union(frames)
            rows = [] if frame is None else [r.asDict() for r in frame.collect()]
        finally:
            tables.close()
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in self.cases}
        for row in rows:
            assert set(row) == {name for name, _ in ANOMALY_COLUMNS}
            assert row["explain"], row
            prefix = f"{row['topic']}/"
            value = row["value"]
            found[row["topic"]].append({**row, "value": value.removeprefix(prefix) if value else value})
        return {name: (expected[name], found[name]) for name in self.cases}
