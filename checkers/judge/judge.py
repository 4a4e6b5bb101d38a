"""The judge: all checkers over one stored run → a verdict with counts and witnesses, stored with the run.

Anomalies go to `results/anomalies` (Parquet, the whole set) and are counted and quoted from there; nothing else is
collected. The worst wins: invalid > unknown > valid, and unknown always has a reason.

An imported history (JSON lines, EDN) and a generated one record what happened as events; a table without events means
that nothing of that sort happened, so kinds that need it are listed as not checked. A Shatterproof run, or a folder
that somebody wrote in its format, must have the tables of its kind; a missing one makes the kinds that need it
unknown.

Incomplete evidence proves neither an anomaly nor its absence: kinds that need it are `unknown`, and their findings in
tables that have lost rows are reported but do not count. A history in which nothing can have gone wrong, because
nothing was acknowledged, read or stored, is unknown as well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Logs, Severity
from checkers.catalogue import CATALOGUE, CHECKERS
from checkers.judge.executor import run_checkers
from checkers.judge.headline import Found, headline, why_green
from checkers.judge.statistics import figures, unfinished_reads
from checkers.views.completeness import sentence_of
from checkers.views.tables import Tables
from checkers.views.under_faults import UnderFault
from harness.core import contracts
from harness.core.atomic_files import write_beside
from harness.core.contracts import Contract, Level
from harness.history.edn import sidecar as left_out
from harness.history.runfile import read_meta
from harness.history.schema import TABLES
from harness.history.store import StoredRun

WITNESSES = 8
EVENTS_ALONE = ("jsonl", "edn", "bench")
"""Sources of histories that record what happened as events: what they do not record did not happen."""
VALID, UNKNOWN, INVALID = "valid", "unknown", "invalid"
_SAYS_WHAT_WAS_DUE = {"mirror_states": (2, 3, 4), "group_offsets": (4,)}
"""Table → sections of the catalogue whose kinds would report a wrong anomaly, or miss one, where it has been lost."""
_EVERY_SECTION = (1, 2, 3, 4, 5)
_TOUCHED = {
    **dict.fromkeys(("ops", "op_records"), _EVERY_SECTION),
    **dict.fromkeys(("batches", "records", "log_ends", "configs", "faults"), (1, 2, 3, 4)),
    **dict.fromkeys(("final_reads",), (1,)),
    **dict.fromkeys(("mirror_states",), (2, 3, 4)),
    **dict.fromkeys(("group_offsets", "acls", "mirror_names", "metrics"), (4,)),
    **dict.fromkeys(("objects", "object_refs"), (5,)),
}
"""Table → sections of the catalogue whose kinds may report an anomaly that its lost rows would explain."""
_THINGS_IN_ITSELF = (
    *("records", "group_offsets", "mirror_states", "acls", "mirror_names", "metrics", "objects", "object_refs"),
)
"""Tables whose rows can be judged, whatever clients did."""
_OF_A_RUN = ("ops", "op_records", "log_ends", "batches", "records", "final_reads")


@dataclass(frozen=True)
class Finding:
    """One kind that was found. count: all of them; breaches: those that the contract never allows; found: the same by
    cluster and by the contract's level there."""

    kind: AnomalyKind
    count: int
    breaches: int
    level: Level
    reason: str
    found: tuple[Found, ...] = ()
    witnesses: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The judge's result. verdict: valid, unknown or invalid; unjudged: kind → why it could not be checked.
    headline: the verdict and its findings in one line."""

    verdict: str
    headline: str
    why: str
    contract: Contract
    findings: tuple[Finding, ...]
    looked_at: tuple[str, ...]
    unjudged: dict[str, str] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    carried_under_faults: tuple[UnderFault, ...] = ()
    seconds: float = 0.0
    checker_seconds: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The content of results.json."""
        return {
            "valid": {VALID: True, INVALID: False, UNKNOWN: "unknown"}[self.verdict],
            "headline": self.headline,
            "why": self.why,
            "contract": self.contract.name,
            "anomalies": {
                f.kind.name: {
                    "count": f.count,
                    "severity": str(f.kind.severity),
                    "allowed": f.breaches == 0 and f.kind.severity is not Severity.UNKNOWN,
                    "level": str(f.level),
                    "reason": f.reason,
                    "never_allowed": f.breaches,
                    "witnesses": list(f.witnesses),
                }
                for f in self.findings
            },
            "looked_at": list(self.looked_at),
            "not_looked_at": self.unjudged,
            "figures": self.figures,
            "carried_under_faults": [fault.to_json() for fault in self.carried_under_faults],
            "seconds": round(self.seconds, 1),
            "checker_seconds": self.checker_seconds,
        }


def judge(path: Path, contract: str | None, spark: SparkSession) -> Judgement:
    """Judge a run's folder and store `results.json` and `results/anomalies` in it.

    contract: its name; None: the run's own, else `kafka-clean`.
    A torn file is left out, and a checker that fails gives no answer: either is named in `why`, and the verdict is then
    unknown at best.
    Raises: HistoryError for a folder that is not a run; UsageError for a contract that does not exist; StorageError
    when the results cannot be written.
    """
    began = time.monotonic()
    promised = contracts.load(contract or read_meta(path).test.contract or contracts.DEFAULT)
    tables = Tables.open(path, spark, contract=promised.name)
    run = tables.stored.run
    try:
        chosen, unjudged, missing = _applicable(tables)
        results = run_checkers(tables, chosen)
        for checker in chosen:
            why = results.unanswered.get(checker.name)
            if why is not None:
                unjudged = {**{kind.name: why for kind in checker.kinds}, **unjudged}
        incomplete, holes = _incomplete(tables, chosen)
        unjudged = {**incomplete, **unjudged}
        findings, doubtful = _doubted(_findings(results.anomalies, promised), run)
        looked_at = tuple(kind.name for checker in chosen for kind in checker.kinds if kind.name not in unjudged)
        unknowns = [*_of_its_end(run), *run.problems, *missing, *holes, *doubtful, *results.failures]
        unknowns += _unknowns(run, findings)
        if not unknowns and not findings:
            unknowns = _proves_nothing(tables)
        verdict, found = _verdict(findings, unknowns), [one for finding in findings for one in finding.found]
        why = _why(findings, unknowns) or why_green(promised, found)
        judgement = Judgement(
            verdict=verdict,
            headline=headline(verdict, why, found),
            why=why,
            contract=promised,
            findings=findings,
            looked_at=looked_at,
            unjudged=unjudged,
            figures=figures(tables),
            carried_under_faults=tables.carried_under_faults.faults,
            seconds=time.monotonic() - began,
            checker_seconds=results.seconds,
        )
    finally:
        tables.close()
    _write_results(path, judgement)
    return judgement


def expected_tables(t: Tables) -> tuple[str, ...]:
    """The tables that a run of this sort must have; without one, the kinds that need it are unknown."""
    meta = t.meta
    if meta.source in EVENTS_ALONE:
        return ()
    expected = list(_OF_A_RUN)
    if meta.test.mirror or meta.topic_map:
        expected.append("mirror_states")
    if meta.schedule:
        expected.append("faults")
    if meta.test.workload and t.facts.any("commit_offset", "fetch_offset"):
        expected.append("group_offsets")  # a test takes snapshots of the groups that its workload uses
    return tuple(expected)


def _applicable(t: Tables) -> tuple[list[Checker], dict[str, str], list[str]]:
    """Checkers that have something to check; kind → the table it lacks; and the reasons for unknowns due to that."""
    run = t.stored.run
    absent = [table for table in expected_tables(t) if not run.has(table)]
    chosen: list[Checker] = []
    unjudged: dict[str, str] = {}
    needed: dict[str, list[str]] = {table: [] for table in absent}
    for checker in CHECKERS.values():
        lacking = {kind.name: _lacking(kind, run, absent) for kind in checker.kinds}
        if any(not tables for tables in lacking.values()):
            chosen.append(checker)
        for kind, tables in lacking.items():
            if tables:
                unjudged[kind] = f"table {tables[0]} is missing"
                for table in tables:
                    if table in needed:
                        needed[table].append(kind)
    missing = [
        f"table {table} is missing in {run.path}, so "
        + (f"{_some(kinds)} cannot be judged" if kinds else "what it would show was not checked")
        for table, kinds in needed.items()
    ]
    return chosen, unjudged, missing


def _lacking(kind: AnomalyKind, run: StoredRun, absent: Sequence[str]) -> list[str]:
    required = [table for table in kind.requires if not run.has(table)]
    if kind.any_of and not any(run.has(table) for table in kind.any_of):
        required.append(kind.any_of[0])
    due = [table for table in absent if kind.section in _SAYS_WHAT_WAS_DUE.get(table, ())]
    return required + [table for table in due if table not in required]


def _incomplete(t: Tables, chosen: Iterable[Checker]) -> tuple[dict[str, str], list[str]]:
    """Kinds that need incomplete logs → which logs; and the same in one sentence for each sort of need."""
    found: dict[str, str] = {}
    sentences: list[str] = []
    for logs in (Logs.ANY, Logs.EVERY):
        missing = [gap for gap in t.gaps if gap.only or logs is Logs.EVERY]
        kinds = [kind.name for checker in chosen for kind in checker.kinds if kind.needs_logs is logs]
        if missing and kinds:
            what = sentence_of(missing)
            found |= dict.fromkeys(kinds, what)
            sentences.append(f"{what}, so {_some(kinds)} cannot be judged there")
    return found, sentences


def _doubted(findings: Sequence[Finding], run: StoredRun) -> tuple[tuple[Finding, ...], list[str]]:
    """The findings, not counting those that rows of a torn file, or a system that was never healed, might explain; and
    sentences about these."""
    torn = {name for name in TABLES if any(f"/{name}/" in problem for problem in run.problems)}
    touched = {section for name in torn for section in _TOUCHED.get(name, _EVERY_SECTION)}
    unsaid = {section for name in run.meta.left_out for section in _TOUCHED.get(name, ())}
    unhealed = bool(run.meta.unhealed)
    kept: list[Finding] = []
    doubted: dict[str, list[str]] = {}
    for f in findings:
        cause = "what the torn files held" if f.kind.section in touched else ""
        if not cause and f.kind.section in unsaid:
            cause = "what the export left out"
        if unhealed and f.kind.after_healing:
            cause = "what the harness could not heal"
        kept.append(replace(f, breaches=0) if cause else f)
        if cause and f.breaches:
            doubted.setdefault(cause, []).append(f"{f.kind.name} {f.breaches}")
    doubts = [f"{_some(names)} may be due to {cause}, so it does not count" for cause, names in doubted.items()]
    return tuple(kept), doubts


def _proves_nothing(t: Tables) -> list[str]:
    """Why a history proves nothing: nothing was acknowledged, read or stored that could be lost, doubled or changed."""
    if any(t.stored.run.rows(table) for table in _THINGS_IN_ITSELF):
        return []
    located = t.table("op_records").where("offset is not null")
    if located.where("action in ('poll', 'fetch')").limit(1).count():
        return []
    if t.large and t.table("ops").where("type = 'ok' and f = 'send' and txn is null").limit(1).count():
        return []  # found without a join of all sends
    if t.sends.where("outcome in ('acked', 'committed')").limit(1).count():
        return []
    ends = F.greatest("log_end", "high_watermark", "last_stable", "leader_epoch")
    if t.table("log_ends").where(ends > 0).limit(1).count():
        return []
    if t.table("ops").where("type != 'invoke'").limit(1).count():
        return ["nothing was acknowledged, read or stored, so nothing could have gone wrong"]
    return ["the history holds no completed operation, so it proves nothing"]


def _findings(stored: DataFrame | None, contract: Contract) -> tuple[Finding, ...]:
    """Counts per kind, and the best witnesses of each: breaches first."""
    if stored is None:
        return ()
    groups = [row.asDict() for row in stored.groupBy("kind", "form", "cluster").count().collect()]
    if not groups:
        return ()
    breach = [g for g in groups if _level(contract, g) is Level.NEVER]
    quoted = _quote(stored, breach)
    findings = []
    for name, kind in CATALOGUE.items():
        mine = [g for g in groups if g["kind"] == name]
        if not mine:
            continue
        bad = [g for g in mine if g in breach]
        telling = (bad or mine)[0]
        clause = contract.clause(name, form=telling["form"], cluster=telling["cluster"])
        findings.append(
            Finding(
                kind=kind,
                count=sum(g["count"] for g in mine),
                breaches=sum(g["count"] for g in bad),
                level=clause.level,
                reason=clause.reason,
                found=_by_cluster(kind, mine, contract),
                witnesses=tuple(quoted.get(name, ())),
            )
        )
    return tuple(findings)


def _by_cluster(kind: AnomalyKind, groups: Iterable[dict[str, Any]], contract: Contract) -> tuple[Found, ...]:
    counts: dict[tuple[str | None, Level, str], int] = {}
    for g in groups:
        clause = contract.clause(g["kind"], form=g["form"], cluster=g["cluster"])
        key = (g["cluster"], clause.level, clause.reason)
        counts[key] = counts.get(key, 0) + g["count"]
    return tuple(Found(kind, cluster, count, level, reason) for (cluster, level, reason), count in counts.items())


def _level(contract: Contract, group: dict[str, Any]) -> Level:
    return contract.clause(group["kind"], form=group["form"], cluster=group["cluster"]).level


def _quote(stored: DataFrame, breach: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    def same(column: str, value: str | None) -> Any:
        return F.col(column).eqNullSafe(F.lit(value))

    is_breach = F.lit(False)
    for g in breach:
        is_breach = is_breach | (same("kind", g["kind"]) & same("form", g["form"]) & same("cluster", g["cluster"]))
    order: list[Any] = [(~is_breach).cast("int"), "rank", "cluster", "topic", "partition", "offset", "value", "explain"]
    numbered = stored.withColumn("n", F.row_number().over(Window.partitionBy("kind").orderBy(*order)))
    quoted: dict[str, list[dict[str, Any]]] = {}
    for row in numbered.where(F.col("n") <= WITNESSES).orderBy("kind", "n").drop("n", "rank").collect():
        witness = {key: value for key, value in row.asDict().items() if value is not None and key != "kind"}
        quoted.setdefault(row["kind"], []).append(witness)
    return quoted


def _of_its_end(run: StoredRun) -> list[str]:
    """Why a run proves nothing, whatever is in its tables: it did not finish, or was never healed."""
    reasons = []
    meta = run.meta
    if meta.status in ("failed", "interrupted"):
        reasons.append(f"the run {'was interrupted' if meta.status == 'interrupted' else 'failed'}: {meta.why}")
    elif meta.status == "running":
        reasons.append("the run never finished: its process was killed, or it still runs")
    if meta.unhealed:
        reasons.append(f"the harness could not heal: {'; '.join(meta.unhealed)}")
    return reasons


def _unknowns(run: StoredRun, findings: Iterable[Finding]) -> list[str]:
    """Every reason, one sentence each, why a clean result would prove nothing."""
    reasons = [left_out.sentence(run.meta.left_out)] if run.meta.left_out else []
    cut_off = unfinished_reads(run)
    if cut_off:
        reasons.append(f"{cut_off} final reads were cut off, so records that they did not reach may be lost or late")
    for finding in findings:
        if finding.kind.severity is Severity.UNKNOWN:
            words = finding.witnesses[0]["explain"] if finding.witnesses else finding.kind.what
            reasons.append(
                f"{finding.kind.name}: {words}" + (f" (and {finding.count - 1} more)" if finding.count > 1 else "")
            )
    return reasons


def _verdict(findings: Iterable[Finding], unknowns: Sequence[str]) -> str:
    if any(f.breaches and f.kind.severity is not Severity.UNKNOWN for f in findings):
        return INVALID
    return UNKNOWN if unknowns else VALID


def _why(findings: Sequence[Finding], unknowns: Sequence[str]) -> str:
    bad = [f for f in findings if f.breaches and f.kind.severity is not Severity.UNKNOWN]
    parts = [f"{f.kind.name} {f.breaches}: {f.reason}" for f in bad]
    return "; ".join([*parts, *unknowns])


def _some(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _write_results(path: Path, judgement: Judgement) -> None:
    write_beside(path / "results.json", json.dumps(judgement.to_json(), indent=2, ensure_ascii=False) + "\n")
