"""Stored runs that finished and were judged, read back for pages that compare many of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.core.errors import HistoryError, UsageError
from harness.core.testspec import TestSpec, parse_spec
from harness.history.runfile import read_meta
from harness.report.results import Results, load_results
from mirrors.reference.server.design import Design, design_from, parse_design

REFERENCE: Final = "reference"
_SWITCHES: Final = frozenset(Design.__dataclass_fields__)


@dataclass(frozen=True, kw_only=True)
class JudgedRun:
    """One run. design: of the reference mirror; None for another one."""

    run: str
    spec: TestSpec
    design: Design | None
    results: Results

    @property
    def found(self) -> Mapping[str, int]:
        """Kind → how many."""
        return {a.kind: a.count for a in self.results.anomalies if a.count}

    @property
    def forbidden(self) -> frozenset[str]:
        """Kinds of anomalies that the run's contract never allows."""
        return frozenset(a.kind for a in self.results.forbidden if a.severity != "unknown")


def judged_runs(folder: Path, *, mirrors: Collection[str]) -> Iterator[JudgedRun]:
    """Judged and finished runs of these mirrors under a folder, by the names of their folders; anything else is
    skipped."""
    for path in sorted(folder.glob("*/run.json")):
        try:
            meta = read_meta(path.parent)
            if meta.test.mirror not in mirrors or meta.status != "finished":
                continue
            spec = parse_spec(meta.test.spec, where=str(path))
            design = None
            if meta.test.mirror == REFERENCE:
                values = {k: v for k, v in meta.test.mirror_options.items() if k in _SWITCHES}
                design = design_from(values) if values else parse_design(spec.design)
            results = load_results(path.parent)
        except (HistoryError, UsageError):
            continue
        yield JudgedRun(run=path.parent.name, spec=spec, design=design, results=results)
