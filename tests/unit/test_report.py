"""Reports from stored results: plotted numbers, JUnit, Markdown, exit codes, HTML."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from harness.core.errors import EXIT_FAILED, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, HistoryError
from harness.history.schema import TABLES
from harness.report.html import write_report
from harness.report.junit import junit_xml
from harness.report.results import load_results, parse_results
from harness.report.series import fault_spans, read_series
from harness.report.summary import TestOutcome, campaign_exit_code, markdown, table
from harness.report.terminal import print_results

pytestmark = pytest.mark.unit

SECOND = 1_000_000_000


def _store(run: Path, name: str, rows: list[dict[str, Any]]) -> None:
    folder = run / name
    folder.mkdir(parents=True, exist_ok=True)
    columns = TABLES[name].schema.names
    table = pa.Table.from_pylist([{c: row.get(c) for c in columns} for row in rows], schema=TABLES[name].schema)
    pq.write_table(table, folder / "part-000000.parquet")


def _op(index: int, second: float, type_: str, f: str = "send", cluster: str = "A", invoke: int | None = None) -> Any:
    return {
        "index": index,
        "time_ns": int(second * SECOND),
        "process": "p",
        "type": type_,
        "f": f,
        "cluster": cluster,
        "invoke_index": invoke,
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "r1"
    ops = []
    for n in range(20):
        ops.append(_op(2 * n, n * 0.5, "invoke"))
        ops.append(_op(2 * n + 1, n * 0.5 + 0.02, "ok" if n != 3 else "info", invoke=2 * n))
    _store(run, "ops", ops)
    fault = {"fault_id": 1, "name": "broker-kill", "target": "A-broker-2"}
    _store(
        run,
        "faults",
        [
            {**fault, "action": "inject", "time_ns": 2 * SECOND, "ok": True},
            {**fault, "action": "bit", "time_ns": 2 * SECOND + 5, "ok": True, "result": "the container is stopped"},
            {**fault, "action": "heal", "time_ns": 4 * SECOND, "ok": True, "result": "in sync again"},
            {**fault, "fault_id": 2, "action": "skip", "time_ns": 5 * SECOND, "ok": True, "result": "no room"},
        ],
    )
    (run / "run.json").write_text(
        json.dumps({"run_id": "r1", "test": {"name": "one", "seed": 5}, "notes": ["a <b> c"]})
    )
    (run / "results.json").write_text(json.dumps(RESULTS))
    return run


RESULTS: dict[str, Any] = {
    "valid": False,
    "why": "1 kind that the contract never allows",
    "contract": "mm2-exactly-once",
    "anomalies": {
        "mirror_loss": {
            "count": 2,
            "severity": "S1",
            "allowed": False,
            "witnesses": [{"explain": "A append-0-1 offset 7 is not in B & <gone>"}],
        },
        "duplicate": {"count": 5, "severity": "S2", "allowed": True, "witnesses": []},
    },
    "looked_at": ["mirror_loss", "duplicate", "phantom"],
    "not_looked_at": {"topic_id": "table batches is missing"},
}


def test_rates_and_latencies_count_every_completion_once(run: Path) -> None:
    series = read_series(run)
    width = float(series.rates.times[0]) * 2
    totals = {key: round(float(values.sum()) * width) for key, values in series.rates.rates.items()}
    assert totals == {("A", "send", "ok"): 19, ("A", "send", "info"): 1}
    x, y = series.latencies.points[("A", "send", "ok")]
    assert len(x) == 19
    assert y == pytest.approx([20.0] * 19)
    assert series.end_s == pytest.approx(9.52)


def test_a_fault_spans_from_injection_to_healing_and_a_skipped_one_is_none(run: Path) -> None:
    (span,) = fault_spans(run)
    assert (span.start, span.end, span.bit, span.seen) == (2.0, 4.0, True, "the container is stopped")


def test_the_html_has_verdict_witness_and_faults_and_escapes(run: Path) -> None:
    text = write_report(run).read_text()
    assert "<h1>invalid</h1>" in text
    assert "A append-0-1 offset 7 is not in B &amp; &lt;gone&gt;" in text
    assert "a &lt;b&gt; c" in text
    assert "A-broker-2" in text
    assert "Checked and not found: <code>phantom</code>" in text
    assert "<code>topic_id</code>: table batches is missing" in text
    assert "plotly" in text
    assert 'src="http' not in text


def test_a_report_without_any_table_is_written(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps({"valid": "unknown", "why": "no ops", "anomalies": {}}))
    assert "<h1>unknown</h1>" in write_report(tmp_path).read_text()


def test_no_results_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="shatter check"):
        load_results(tmp_path)
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(HistoryError, match="not a stored verdict"):
        load_results(tmp_path)


def _outcome(verdict: str, **more: Any) -> TestOutcome:
    return TestOutcome(name=f"t-{verdict}", verdict=verdict, why=f"why {verdict}", seconds=1.5, **more)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["valid", "valid"], EXIT_VALID),
        (["valid", "unknown"], EXIT_UNKNOWN),
        (["unknown", "invalid", "valid"], EXIT_INVALID),
        (["failed", "unknown"], EXIT_FAILED),
        (["failed", "invalid"], EXIT_INVALID),
        (["valid", "not run"], EXIT_UNKNOWN),
        ([], EXIT_UNKNOWN),
    ],
)
def test_the_worst_verdict_is_the_exit_code(verdicts: list[str], code: int) -> None:
    assert campaign_exit_code([_outcome(v) for v in verdicts]) == code


def test_junit_has_counts_and_witnesses() -> None:
    outcomes = [
        _outcome("valid"),
        _outcome("invalid", results=parse_results(RESULTS), run=Path("runs/x")),
        _outcome("unknown"),
        _outcome("failed"),
        _outcome("not run"),
    ]
    suite = ET.fromstring(junit_xml("c", outcomes))
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "2",
        "errors": "2",
        "skipped": "0",
    }
    failure = suite.find("testcase[@name='t-invalid']/failure")
    assert failure is not None
    assert failure.text is not None
    assert "mirror_loss × 2 (never allowed): A append-0-1 offset 7" in failure.text
    assert "duplicate × 5 (allowed)" in failure.text


def test_records_mirrored_under_each_fault_are_shown(run: Path) -> None:
    fault = {"fault_id": 1, "name": "broker-kill", "cluster": "A", "records": 531, "partitions": 6}
    document = {"valid": True, "anomalies": {}, "carried_under_faults": [fault]}
    (run / "results.json").write_text(json.dumps(document))
    assert "531 records on 6 partitions" in write_report(run).read_text()
    console = Console(file=io.StringIO(), width=300)
    print_results(console, parse_results(document), run=run, report=None)
    assert "carried under faults, records  531 (broker-kill on A)" in console.file.getvalue()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="carried_under_faults must hold objects"):
        parse_results({**document, "carried_under_faults": [1]})


def test_allowed_kinds_of_a_valid_run_are_in_every_summary(run: Path) -> None:
    held = "valid, 107 allowed: A lost acknowledged writes (S1)"
    anomalies = {"lost_write": {"count": 107, "severity": "S1", "allowed": True, "level": "allowed"}}
    document = {"valid": True, "headline": held, "why": "allowed <so>", "anomalies": anomalies}
    (run / "results.json").write_text(json.dumps(document))
    outcome = _outcome("valid", results=parse_results(document), run=run)
    assert f"<h1>{held}</h1>" in write_report(run).read_text()
    text = markdown("c", [outcome])
    assert "| t-valid | **valid**: 107 allowed: A lost acknowledged writes (S1) |" in text
    assert f"## t-valid: {held}" in text
    told = ET.fromstring(junit_xml("c", [outcome])).findtext("testcase/system-out") or ""
    assert told.splitlines()[0] == held
    console = Console(file=io.StringIO(), width=300)
    print_results(console, parse_results(document), run=run, report=None)
    console.print(table("c", [outcome]))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.startswith(held + "\n")
    assert held in shown.split("Campaign")[1]


def test_the_markdown_summary_names_every_test_and_what_was_found() -> None:
    text = markdown("c", [_outcome("valid"), _outcome("invalid", results=parse_results(RESULTS))])
    assert text.startswith("# c: 1 valid, 1 invalid\n")
    assert "| t-invalid | **invalid** |  | mirror_loss 2, duplicate 5 (allowed) | 2 s |" in text
    assert "- mirror_loss × 2 (never allowed)" in text
