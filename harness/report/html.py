"""RUN/report.html: verdict, anomalies with their witnesses, and plots, in one file that needs no network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import plotly.io
from markupsafe import Markup
from pydantic import ValidationError

from harness.core.atomic_files import refuse_target, write_beside
from harness.core.errors import HistoryError, ShatterError
from harness.core.plain import plain
from harness.history.jsonfile import read_json
from harness.history.runfile import RUN_FILE, RunMeta
from harness.report.fault_rows import fault_rows
from harness.report.plots import fault_colors, figure
from harness.report.results import Results, load_results
from harness.report.series import Series, read_columns, read_series

MAX_ROWS = 200


def write_report(run: Path) -> Path:
    """Write RUN/report.html from the data stored in RUN, and return its path.

    Raises: HistoryError when the run has no results.json, or holds data that cannot be read; StorageError when the page
    cannot be written, or the path is not a regular file.
    """
    path = run / "report.html"
    refuse_target(path)
    results = load_results(run)
    run = run.absolute()  # Arrow takes a relative name with a colon for an address
    series = read_series(run)
    page = _environment().get_template("report.html.j2").render(**_content(run, results, series))
    write_beside(path, page)
    return path


def report_softly(run: Path, *, say: Callable[[str], None]) -> Path | None:
    """The report of a judged run. If it cannot be made, one sentence says why, and only the page is lost: verdict and
    exit code stand."""
    try:
        return write_report(run)
    except ShatterError as error:
        reason = str(error)
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    say(f"no report was made ({reason}); the verdict stands")
    return None


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("harness.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
    )


def _shown(value: Any) -> Any:
    """A value for the template: text with control characters escaped; finished HTML as it is."""
    return value if isinstance(value, Markup) else plain(value, keep="\n\t")


def _content(run: Path, results: Results, series: Series) -> dict[str, Any]:
    meta, problem = _meta(run)
    plot = plotly.io.to_html(
        figure(series), include_plotlyjs=True, full_html=False, config={"displaylogo": False, "responsive": True}
    )
    test = meta.test.model_dump()
    found = {a.kind for a in results.anomalies if a.count}
    return {
        "name": meta.test.name or meta.run_id,
        "run": run.name,
        "meta": meta,
        "test": {
            key: text_of(value) for key, value in test.items() if value not in (None, "", [], {}) and key != "files"
        },
        "given": meta.test.files,
        "results": results,
        "seen": [a for a in results.anomalies if a.count],
        "absent": [kind for kind in results.raw.get("looked_at", []) if kind not in found],
        "unjudged": results.raw.get("not_looked_at", {}),
        "plot": plot,
        "faults": fault_rows(run, series.faults, meta.schedule),
        "carried": results.carried,
        "colors": fault_colors(series.faults),
        "sampled": series.rates.sampled,
        "totals": _totals(series),
        "unfinished": _unfinished_reads(run),
        "figures": {key: text_of(value) for key, value in results.raw.get("figures", {}).items()},
        "notes": [*problem, *meta.notes],
        "logs": sorted(p.relative_to(run).as_posix() for p in (run / "logs").glob("*"))
        if (run / "logs").is_dir()
        else [],
    }


def text_of(value: Any) -> str:
    """A test parameter for display: names with their values, members with commas."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {text_of(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(text_of, value))
    return str(value)


def _meta(run: Path) -> tuple[RunMeta, list[str]]:
    """The readable part of run.json, and what is unreadable. The format version is not checked."""
    document: dict[str, Any] = {}
    try:
        document = read_json(run / RUN_FILE, mend="fix it by hand")
        return RunMeta.model_validate({"run_id": run.name, **document}), []
    except FileNotFoundError:
        return RunMeta(run_id=run.name), []
    except HistoryError as error:
        return RunMeta(run_id=run.name), [str(error)]
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        return RunMeta(run_id=run.name), [f"{run / RUN_FILE} cannot be shown: key {where} is odd"]


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
