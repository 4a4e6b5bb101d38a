"""Export to EDN and import do not change the verdict: stories, with and without their faults, are judged before and
after. An export without the logs says so, and its verdict is unknown at best."""

from __future__ import annotations

from pathlib import Path

import pytest
import told_exports
import told_order
import told_renames
from jsonl_story import Pack, write
from pyspark.sql import SparkSession

from checkers.judge.judge import Judgement, judge
from harness.history.edn import sidecar as edn_beside
from harness.history.edn.importer import export_edn, import_edn
from harness.history.imports import as_run_folder
from harness.history.jsonl.importer import import_jsonl
from harness.history.store import open_run
from tests.unit.test_edn_whole import as_jepsen_pairs_them, content

CASES = Path(__file__).parent.parent / "histories"
PACKS: dict[str, Pack] = {
    "exported": told_exports.EXPORTED,
    "order": told_order.ORDER,
    "calm": told_order.CALM,
    "renamed": told_renames.RENAMED,
}
STORIES = told_exports.EXPORTED
Found = dict[str, dict[str, list[str]]]


def through_edn(run: Path) -> Path:
    """The run, exported and imported again."""
    exported = export_edn(run, run.with_suffix(".edn"))
    assert exported.tables_left_out == ()
    return import_edn(exported.path, run.with_name("again"))


@pytest.mark.parametrize("pack", PACKS)
def test_every_table_of_the_stories_comes_back(tmp_path: Path, pack: str) -> None:
    run = import_jsonl(write(tmp_path / "pack.jsonl", list(PACKS[pack].told().values())), tmp_path / "run")
    again = open_run(through_edn(run))
    for table, rows in content(open_run(run)).items():
        assert content(again)[table] == rows, table
    as_jepsen_pairs_them(tmp_path / "run.edn")


@pytest.fixture(scope="module", params=["before", "after"])
def found(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """story → kinds, from the JSON lines and after the export."""
    folder = tmp_path_factory.mktemp(request.param)
    return STORIES.judged(spark, folder, through_edn) if request.param == "after" else STORIES.judged(spark, folder)


@pytest.mark.parametrize("story", list(STORIES.told()))
def test_story(found: Found, story: str) -> None:
    assert set(found[story]) == STORIES.expected(story), found[story]


def test_nothing_else_is_named(found: Found) -> None:
    assert set(found) == set(STORIES.told())


def without_logs(case: str, contract: str, folder: Path, spark: SparkSession) -> Judgement:
    with as_run_folder(CASES / case) as run:
        exported = export_edn(run, folder / "exported.edn")
    assert {"batches", "records", "log_ends"} <= set(exported.tables_left_out)
    with as_run_folder(exported.path) as run:
        return judge(run, contract, spark)


@pytest.mark.parametrize(
    ("case", "contract"),
    [
        ("reports/k-renamed-topic-clean.jsonl", "mm2-at-least-once"),  # valid
        ("reports/k-renamed-topic-loss.jsonl", "mm2-at-least-once"),  # the logs show a loss
        ("reports/k-internal-topic-jsonl.jsonl", "kafka-clean"),
        ("reports/cleaner-removes-aborted-and-tombstones.jsonl", "kafka-clean"),  # the logs excuse what is missing
        ("D01-pid-collision-acked-not-appended.jsonl", "cluster-mirror/kip-2026-02"),
        ("D06-follower-exposes-uncommitted.jsonl", "kafka-clean"),
    ],
)
def test_without_the_logs_the_verdict_is_unknown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, contract: str
) -> None:
    monkeypatch.setattr(edn_beside, "ROWS", 0)
    judgement = without_logs(case, contract, tmp_path, spark)
    assert judgement.verdict == "unknown", judgement.why
    assert not any(f.breaches for f in judgement.findings if f.kind.severity != "unknown")
    assert "the export to EDN left out the logs of replicas (tables " in judgement.why
    assert judgement.why.count("check the run itself") == 1
