"""The judge: all checkers over one stored run → a verdict with counts and witnesses, stored with the run.

Anomalies go to `results/anomalies` (Parquet, the whole set) and are counted and quoted from there; nothing else is
collected. The worst wins: invalid > unknown > valid, and unknown always has a reason.

Incomplete evidence proves neither an anomaly nor its absence: kinds that need it are `unknown`, and their findings in
tables that have lost rows are reported but do not count (`judge.evidence`). A history in which nothing can have gone
wrong, because nothing was acknowledged, read or stored, is unknown as well (`judge.unknowns`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from checkers.base import Severity
from checkers.judge.evidence import applicable, doubted, incomplete
from checkers.judge.executor import run_checkers
from checkers.judge.findings import findings_of
from checkers.judge.headline import headline, why_green
from checkers.judge.judgement import INVALID, UNKNOWN, VALID, Finding, Judgement
from checkers.judge.statistics import figures
from checkers.judge.unknowns import why_nothing_is_proven, why_uncertain, why_unfinished
from checkers.views.tables import Tables
from harness.core import contracts
from harness.core.atomic_files import write_beside
from harness.core.contracts import Contract
from harness.history.runfile import read_meta


def judge(path: Path, contract: str | None, spark: SparkSession) -> Judgement:
    """Judge a run's folder and store `results.json` and `results/anomalies` in it.

    contract: its name; None: the run's own, else `kafka-clean`.
    A torn file is left out, and a checker that fails gives no answer: either is named in `why`, and the verdict is then
    unknown at best.
    Raises: HistoryError for a folder that is not a run; UsageError for a contract that does not exist; StorageError
    when the results cannot be written.
    """
    began = time.monotonic()
    meta = read_meta(path)
    able = [name for name, stated in meta.capabilities.items() if stated.yes]
    promised = contracts.load(contract or meta.test.contract or contracts.DEFAULT, able=able)
    tables = Tables.open(path, spark, contract=promised.name)
    try:
        judgement = _judged(tables, promised, began)
    finally:
        tables.close()
    write_beside(path / "results.json", json.dumps(judgement.to_json(), indent=2, ensure_ascii=False) + "\n")
    return judgement


def _judged(tables: Tables, contract: Contract, began: float) -> Judgement:
    """Run the checkers, and judge what they found. began: when the judging began (monotonic clock)."""
    run = tables.stored.run
    chosen, unjudged, missing = applicable(tables)
    results = run_checkers(tables, chosen)
    for checker in chosen:
        why = results.unanswered.get(checker.name)
        if why is not None:
            unjudged = {**{kind.name: why for kind in checker.kinds}, **unjudged}
    lacking_logs, holes = incomplete(tables, chosen)
    unjudged = {**lacking_logs, **unjudged}
    findings, doubtful = doubted(findings_of(results.anomalies, contract), tables)
    unknowns = [*why_unfinished(run), *run.problems, *missing, *holes, *doubtful, *results.failures]
    unknowns += why_uncertain(run, findings)
    if not unknowns and not findings:
        unknowns = why_nothing_is_proven(tables)
    verdict, found = _verdict(findings, unknowns), [one for finding in findings for one in finding.found]
    why = _why(findings, unknowns) or why_green(contract, found)
    return Judgement(
        verdict=verdict,
        headline=headline(verdict, why, found),
        why=why,
        contract=contract,
        findings=findings,
        looked_at=tuple(kind.name for checker in chosen for kind in checker.kinds if kind.name not in unjudged),
        unjudged=unjudged,
        figures=figures(tables),
        carried_under_faults=tables.carried_under_faults.faults,
        seconds=time.monotonic() - began,
        checker_seconds=results.seconds,
    )


def _verdict(findings: Iterable[Finding], unknowns: Sequence[str]) -> str:
    if any(f.breaches and f.kind.severity is not Severity.UNKNOWN for f in findings):
        return INVALID
    return UNKNOWN if unknowns else VALID


def _why(findings: Sequence[Finding], unknowns: Sequence[str]) -> str:
    bad = [f for f in findings if f.breaches and f.kind.severity is not Severity.UNKNOWN]
    parts = [f"{f.kind.name} {f.breaches}: {f.reason}" for f in bad]
    return "; ".join([*parts, *unknowns])
