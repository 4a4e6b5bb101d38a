"""Stories of order and positions, of topics that are made again, and of renamed topics: each with its fault shows
exactly its kinds, its clean twin none; judged as a small and as a large history."""

from __future__ import annotations

from collections.abc import Iterator

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
Found = dict[str, dict[str, dict[str, list[str]]]]


@pytest.fixture(scope="module", params=["all", "sieved"])
def found(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Found]:
    """pack → story → kinds."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "sieved":
            patch.setattr("checkers.tables.SMALL_ROWS", 0)
            patch.setattr("checkers.sieve.spans.SPAN_ROWS", 8)
        yield {name: pack.judged(spark, tmp_path_factory.mktemp(name)) for name, pack in PACKS.items()}


@pytest.mark.parametrize(("pack", "story"), [(p, s) for p, pack in PACKS.items() for s in pack.told()])
def test_story(found: Found, pack: str, story: str) -> None:
    assert set(found[pack][story]) == PACKS[pack].expected(story), found[pack][story]


def test_nothing_else_is_named(found: Found) -> None:
    for name, pack in PACKS.items():
        assert set(found[name]) == set(pack.told())
