"""Stories of order and positions, of recreated topics, and of renamed topics: each shows exactly its kinds with its
fault and none without; judged as a small and as a large history."""

from __future__ import annotations

from pathlib import Path

import pytest
import told_lives
import told_order
import told_renames
from jsonl_story import Pack
from pyspark.sql import SparkSession

PACKS: dict[str, Pack] = {
    "order": told_order.ORDER,
    "calm": told_order.CALM,
    "lives": told_lives.LIVES,
    "mirrored": told_lives.MIRRORED,
    "renamed": told_renames.RENAMED,
    "once": told_renames.ONCE,
    "strict": told_renames.STRICT,
}


@pytest.mark.parametrize("layout", ["all", "sieved"])
@pytest.mark.parametrize("pack", PACKS)
def test_stories(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: str, layout: str) -> None:
    if layout == "sieved":
        monkeypatch.setattr("checkers.views.tables.SMALL_ROWS", 0)
        monkeypatch.setattr("checkers.prefilter.spans.SPAN_ROWS", 8)
    stories = PACKS[pack]
    found = stories.judged(spark, tmp_path)
    assert set(found) == set(stories.told()), "nothing else is named"
    wrong = {
        story: (sorted(stories.expected(story)), kinds)
        for story, kinds in found.items()
        if set(kinds) != stories.expected(story)
    }
    assert not wrong, "stories with the kinds that they must show, and those that they show"
