"""docs/kip-1279.md: rows of the same test become one, and the tables of steps are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.report.kip_page import markdown, outcomes
from harness.report.kip_runs import KipRun, publish, read_kip_runs, stored_kip_runs

STEPS = """
| leg | step | outcome | seconds |
|---|---|---|---|
| failover | `stop.cut` | held | 5.5 |
| failback | `stop.cut` | lost 3 records | |
"""


def run(name: str, *, verdict: str = "valid", **given: object) -> KipRun:
    values = {
        "implementation": "reference strict",
        "scenario": "failover",
        "workload": "queue",
        "nemesis": ("broker-kill",),
        "found": {},
        "forbidden": (),
        "figures": {},
    }
    return KipRun(run=name, verdict=verdict, **{**values, **given})  # type: ignore[arg-type]


def page(*runs: KipRun) -> str:
    return markdown(runs, revisions=[], kills=outcomes(STEPS), pauses={})


def test_runs_of_one_test_are_one_row() -> None:
    bad = {"found": {"lost_write": 2, "stop_cut": 1}, "forbidden": ("lost_write",)}
    text = page(
        run("one", figures={"RPO A-B, records": 4, "RPO A-B, transactions": 1}),
        run("two", verdict="invalid", figures={"RPO A-B, records": 9}, **bad),
        run("three", nemesis=("a|b",)),
    )
    assert (
        "| reference strict | failover | queue | `broker-kill` | invalid 1 of 2, valid 1 of 2 "
        "| **lost_write** 2, stop_cut 1 | 4 to 9 |"
    ) in text
    assert "| reference strict | failover | queue | `a\\|b` | valid 1 of 1 | nothing |  |" in text


def test_outcomes_of_steps_are_shown_by_direction() -> None:
    [row] = [line for line in page().splitlines() if line.startswith("| `stop.cut`")]
    assert [cell.strip() for cell in row.split("|")[3:7]] == ["held", "lost 3 records", "", ""]


def test_published_runs_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "kip-1279.json"
    runs = [run("one", found={"stuck": 1}, forbidden=("stuck",)), run("two")]
    path.write_text(publish(runs), encoding="utf-8")
    assert read_kip_runs(path) == runs
    path.write_text('[{"run": "one"}]', encoding="utf-8")
    with pytest.raises(UsageError, match=r"kip-1279\.json is no kip-1279\.json"):
        read_kip_runs(path)


def test_folders_that_are_no_runs_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{", encoding="utf-8")
    assert stored_kip_runs(tmp_path) == []
