"""RUN/report.html: verdict, anomalies with their witnesses, and plots, in one file that needs no network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
import plotly.io

from harness.report.plots import fault_colors, figure
from harness.report.results import Results, load_results
from harness.report.series import Series, read_columns, read_series

MAX_ROWS = 200


def write_report(run: Path) -> Path:
    """Make RUN/report.html from what is stored in RUN and return its path.

    Raises: HistoryError when the run has no results.json.
    """
    results = load_results(run)
    series = read_series(run)
    page = _environment().get_template("report.html.j2").render(**_content(run, results, series))
    path = run / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("harness.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def _content(run: Path, results: Results, series: Series) -> dict[str, Any]:
    meta = _meta(run)
    plot = plotly.io.to_html(
        figure(series), include_plotlyjs=True, full_html=False, config={"displaylogo": False, "responsive": True}
    )
    test = meta.get("test", {})
    found = {a.kind for a in results.anomalies if a.count}
    return {
        "name": test.get("name") or meta.get("run_id") or run.name,
        "run": run.name,
        "meta": meta,
        "test": {key: value for key, value in test.items() if value not in (None, "", [], {})},
        "results": results,
        "seen": [a for a in results.anomalies if a.count],
        "absent": [kind for kind in results.raw.get("looked_at", []) if kind not in found],
        "unjudged": results.raw.get("not_looked_at", {}),
        "plot": plot,
        "faults": series.faults,
        "colors": fault_colors(series.faults),
        "sampled": series.rates.sampled,
        "totals": _totals(series),
        "unfinished": _unfinished_reads(run),
        "figures": results.raw.get("figures", {}),
        "notes": meta.get("notes", []),
        "logs": sorted(p.relative_to(run).as_posix() for p in (run / "logs").glob("*"))
        if (run / "logs").is_dir()
        else [],
    }


def _meta(run: Path) -> dict[str, Any]:
    try:
        document = json.loads((run / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _totals(series: Series) -> list[tuple[str, str, str, int]]:
    if len(series.rates.times) == 0:
        return []
    width = float(series.rates.times[0]) * 2
    return [(c, f, kind, round(float(v.sum()) * width)) for (c, f, kind), v in sorted(series.rates.rates.items())]


def _unfinished_reads(run: Path) -> list[dict[str, Any]]:
    columns = ["cluster", "topic", "partition", "isolation", "position", "target_offset", "complete", "error"]
    table = read_columns(run / "final_reads", columns)
    if table is None:
        return []
    return [row for row in table.to_pylist() if not row["complete"]][:MAX_ROWS]
