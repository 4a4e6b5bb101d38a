"""Control characters in foreign text are escaped where it is shown: terminal, HTML, Markdown."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from harness.core.plain import plain
from harness.report.html import write_report
from harness.report.results import load_results
from harness.report.summary import TestOutcome, markdown
from harness.report.terminal import print_results

pytestmark = pytest.mark.unit
NASTY = "a\x1b[31mred\x1b]0;title\x07\x9b2J\r\u202eback\u2066\u200b\ufeff\ud800\x00\x7f"
HARMLESS = r"a\x1b[31mred\x1b]0;title\x07\x9b2J\r\u202eback\u2066\u200b\ufeff\ud800\x00\x7f"


def steering(text: str) -> list[str]:
    return [c for c in text if c != "\n" and plain(c) != c]


def test_control_characters_are_escaped_and_the_rest_stays() -> None:
    assert plain(NASTY) == HARMLESS
    assert plain("ü€😀 <b>|[x]` ~ é") == "ü€😀 <b>|[x]` ~ é"
    assert plain("a\nb\tc", keep="\n\t") == "a\nb\tc"
    assert plain("a\nb\tc") == r"a\nb\tc"
    assert plain("\U000e0041") == r"\U000e0041"
    assert plain(7) == "7"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / NASTY.replace("\x00", "").replace("\ud800", "")
    run.mkdir()
    anomaly = {"count": 1, "severity": NASTY, "reason": NASTY, "witnesses": [{"explain": NASTY}, {NASTY: [NASTY]}]}
    results = {
        "valid": False,
        "why": NASTY,
        "contract": NASTY,
        "anomalies": {NASTY: anomaly},
        "looked_at": [NASTY],
        "not_looked_at": {NASTY: NASTY},
        "figures": {NASTY: {NASTY: [NASTY]}},
    }
    (run / "results.json").write_text(json.dumps(results))
    meta = {
        "run_id": NASTY,
        "created": NASTY,
        "test": {"name": NASTY, "contract": NASTY, "files": {NASTY: NASTY + "\nline"}, NASTY: {NASTY: NASTY}},
        "versions": {NASTY: NASTY},
        "images": {NASTY: NASTY},
        "notes": [NASTY],
        "phases": [{"name": NASTY, "start_ns": 1}],
        "schedule": [{"fault_id": 1, "nemesis": NASTY, "cluster": NASTY, "role": NASTY, "params": {NASTY: NASTY}}],
    }
    (run / "run.json").write_text(json.dumps(meta))
    return run


def test_the_page_holds_no_control_characters(run: Path) -> None:
    page = write_report(run).read_text(encoding="utf-8")
    body = page[: page.index("<script")] + page[page.rindex("</script>") :]
    assert steering(body) == []
    assert HARMLESS in page


def test_terminal_and_markdown_hold_no_control_characters(run: Path) -> None:
    results = load_results(run)
    out = io.StringIO()
    print_results(Console(file=out, width=500), results, run=run, report=run / "report.html")
    assert steering(out.getvalue()) == []
    assert HARMLESS in out.getvalue()
    outcome = TestOutcome(name="t", verdict="invalid", why=results.why, seconds=1.0, results=results)
    assert steering(markdown("c", [outcome])) == []
