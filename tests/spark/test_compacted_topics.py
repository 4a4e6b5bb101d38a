"""Compacted topics: records that a cleaner may have removed are missed nowhere, retained ones everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import told_compacted
from cases import Case
from literal import History
from pyspark.sql import SparkSession

from checkers.catalogue import CHECKERS
from checkers.views.tables import Tables


def compacted(h: History, topic: str) -> Case:
    h.row("configs", cluster="A", topic=topic, event="look", name="cleanup.policy", value="compact")
    return Case(h, topic)


def found(spark: SparkSession, h: History, folder: Path) -> list[tuple[Any, ...]]:
    tables = Tables.open(h.write(folder), spark)
    try:
        frames = [CHECKERS[name].check(tables) for name in ("poll_order", "torn_transaction")]
        rows = [row for frame in frames if frame is not None for row in frame.collect()]
    finally:
        tables.close()
    return sorted((r.kind, r.topic, r.offset) for r in rows)


def test_what_a_cleaner_removed(spark: SparkSession, tmp_path: Path) -> None:
    h = History(source="shatter")
    c = compacted(h, "cleaned")
    c.send("v0", "v1", "v2", at=0, key="k")
    c.poll((0, "v0"), (1, "v1"), (2, "v2"))
    c.poll((0, "v0"), (2, "v2"), by="later")
    c.log((0, "v0"), (2, "v2"))
    c = compacted(h, "kept")
    c.send("v0", "v1", "v2", at=0, key="k")
    c.poll((0, "v0"), (2, "v2"))
    c.log((0, "v0"), (1, "v1"), (2, "v2"))
    c = compacted(h, "transaction")
    c.whole((0, 0, "v0"), (0, 1, "v1"))
    c.final(3, (1, "v1"), isolation="read_committed")
    c.log((1, "v1"))
    assert found(spark, h, tmp_path / "run") == [("poll_skip", "kept", 1)]


@pytest.mark.parametrize(
    ("pack", "layout"), [*((pack, "all") for pack in told_compacted.PACKS), ("mm2", "sieved"), ("strict", "sieved")]
)
def test_stories(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: str, layout: str) -> None:
    if layout == "sieved":
        monkeypatch.setattr("checkers.views.tables.SMALL_ROWS", 0)
        monkeypatch.setattr("checkers.prefilter.spans.SPAN_ROWS", 8)
    stories = told_compacted.PACKS[pack]
    found = stories.judged(spark, tmp_path)
    assert set(found) == set(stories.told()), "nothing else is named"
    assert {s: k for s, kinds in found.items() if (k := set(kinds)) != stories.expected(s)} == {}
