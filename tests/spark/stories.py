"""Histories of groups, access and states: many cases in one, each with its own topic (or name), judged at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from literal import History
from pyspark.sql import SparkSession

from checkers.base import union
from checkers.catalogue import CHECKERS
from checkers.views.tables import Tables

SECTION_4 = [c for c in CHECKERS.values() if {k.section for k in c.kinds} <= {4, 5}]
STRICT: dict[str, Any] = {"test": {"contract": "cluster-mirror/strict"}, "clusters": {"A": {}, "B": {}}}


class Story(History):
    """A history in which each row of evidence has its own time."""

    def at(self, table: str, **columns: Any) -> None:
        """A row of any table, later than everything before."""
        self._index += 1
        self.row(table, **columns)

    def sync(self, group: str, offset: int, *, event: str = "sync", cluster: str = "B", **columns: Any) -> None:
        """A group offset of partition 0 of the topic that has the group's name."""
        place = {"cluster": cluster, "topic": group, "partition": 0, "kind": "consumer", **columns}
        self.at("group_offsets", group=group, event=event, offset=offset, **place)

    def commit(self, group: str, cluster: str, offset: int | None, *, end: str | None = "ok", **record: Any) -> int:
        """An offset commit of that topic's partition 0."""
        return self._offset("commit", group, cluster, offset, end, **record)

    def fetch(self, group: str, cluster: str, offset: int | None) -> int:
        """An offset fetch that returned this."""
        return self._offset("fetch", group, cluster, offset, "ok")

    def _offset(self, action: str, group: str, cluster: str, offset: int | None, end: str | None, **more: Any) -> int:
        place = {"action": action, "topic": group, "partition": 0, **more}
        columns: dict[str, Any] = {"cluster": cluster, "group": group}
        asked = offset if action == "commit" else None
        process = f"{action}er of {group}"
        invoke = self.event(process, "invoke", f"{action}_offset", [{**place, "offset": asked}], **columns)
        if end is not None:
            done = [{**place, "offset": offset}]
            self.event(process, end, f"{action}_offset", done, invoke_index=invoke, **columns)
        return invoke

    def state(self, topic: str, state: str, *, event: str = "look", **columns: Any) -> None:
        """A mirror state of partition 0 on B."""
        self.at("mirror_states", cluster="B", topic=topic, partition=0, state=state, event=event, **columns)


def judged(spark: SparkSession, history: History, folder: Path) -> list[tuple[Any, ...]]:
    """(kind, form, cluster, topic, offset, value) of every anomaly of sections 4 and 5, sorted."""
    tables = Tables.open(history.write(folder), spark)
    try:
        able = [c for c in SECTION_4 if any(all(map(tables.has, k.requires)) for k in c.kinds)]
        found = union([checker.check(tables) for checker in able])
        assert found is not None
        rows = found.collect()
    finally:
        tables.close()
    assert all(r["explain"] and "?" not in r["explain"] for r in rows), [r["explain"] for r in rows]
    return sorted(((r["kind"], r["form"], r["cluster"], r["topic"], r["offset"], r["value"]) for r in rows), key=str)
