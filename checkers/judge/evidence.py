"""What a run's evidence lets be judged: tables that are missing, logs that are incomplete, findings that lost rows, or
a system that was never healed, might explain.

An imported history (JSON lines, EDN) and a generated one record what happened as events; a table without events means
that nothing of that sort happened, so kinds that need it are listed as not checked. A Shatterproof run, or a folder
that somebody wrote in its format, must have the tables of its kind; a missing one makes the kinds that need it
unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from checkers.base import AnomalyKind, Checker, Logs
from checkers.catalogue import CHECKERS
from checkers.judge.judgement import Finding
from checkers.views.completeness import sentence_of
from checkers.views.tables import Tables
from harness.history.schema import TABLES
from harness.history.store import StoredRun

EVENTS_ALONE = ("jsonl", "edn", "bench")
"""Sources of histories that record what happened as events: what they do not record did not happen."""
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
_ABSENT_TOUCHES = {name: _TOUCHED[name] for name in ("ops", "op_records", "log_ends", "records", "configs", "faults")}
"""As `_TOUCHED`, of whole tables that a run must have and that are missing or empty."""
_OF_A_RUN = ("ops", "op_records", "log_ends", "batches", "records", "final_reads")


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
    if meta.test.spec:
        expected.append("configs")  # a test sets configurations on its topics
    return tuple(expected)


def absent_tables(t: Tables) -> list[str]:
    """The expected tables that are missing, or have no row."""
    return [table for table in expected_tables(t) if not t.stored.run.rows(table)]


def applicable(t: Tables) -> tuple[list[Checker], dict[str, str], list[str]]:
    """Checkers that have something to check; kind → the table it lacks; and the reasons for unknowns due to that."""
    run = t.stored.run
    absent = absent_tables(t)
    chosen: list[Checker] = []
    unjudged: dict[str, str] = {}
    needed: dict[str, list[str]] = {table: [] for table in absent}
    for checker in CHECKERS.values():
        lacking = {kind.name: _lacking(kind, run, absent) for kind in checker.kinds}
        if any(not tables for tables in lacking.values()):
            chosen.append(checker)
        for kind, tables in lacking.items():
            if tables:
                unjudged[kind] = f"table {tables[0]} is {_how(run, tables[0])}"
                for table in tables:
                    if table in needed:
                        needed[table].append(kind)
    missing = [
        f"table {table} is {_how(run, table)} in {run.path}, so "
        + (f"{_some(kinds)} cannot be judged" if kinds else "what it would show was not checked")
        for table, kinds in needed.items()
    ]
    return chosen, unjudged, missing


def _how(run: StoredRun, table: str) -> str:
    return "empty" if run.has(table) else "missing"


def _lacking(kind: AnomalyKind, run: StoredRun, absent: Sequence[str]) -> list[str]:
    required = [table for table in kind.requires if table in absent or not run.has(table)]
    if kind.any_of and not any(run.has(table) and table not in absent for table in kind.any_of):
        required.append(kind.any_of[0])
    due = [table for table in absent if kind.section in _SAYS_WHAT_WAS_DUE.get(table, ())]
    return required + [table for table in due if table not in required]


def incomplete(t: Tables, chosen: Iterable[Checker]) -> tuple[dict[str, str], list[str]]:
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


def doubted(findings: Sequence[Finding], t: Tables) -> tuple[tuple[Finding, ...], list[str]]:
    """The findings, not counting those that rows of a torn file or of a missing table, or a system that was never
    healed, might explain; and sentences about these."""
    run = t.stored.run
    lacking = {section: table for table in reversed(absent_tables(t)) for section in _ABSENT_TOUCHES.get(table, ())}
    torn = {name for name in TABLES if any(f"/{name}/" in problem for problem in run.problems)}
    touched = {section for name in torn for section in _TOUCHED.get(name, _EVERY_SECTION)}
    unsaid = {section for name in run.meta.left_out for section in _TOUCHED.get(name, ())}
    unhealed = bool(run.meta.unhealed)
    kept: list[Finding] = []
    by_cause: dict[str, list[str]] = {}
    for f in findings:
        cause = "what the torn files held" if f.kind.section in touched else ""
        if not cause and f.kind.section in lacking:
            cause = f"what table {lacking[f.kind.section]} held"
        if not cause and f.kind.section in unsaid:
            cause = "what the export left out"
        if unhealed and f.kind.after_healing:
            cause = "what the harness could not heal"
        kept.append(replace(f, breaches=0) if cause else f)
        if cause and f.breaches:
            by_cause.setdefault(cause, []).append(f"{f.kind.name} {f.breaches}")
    doubts = [f"{_some(names)} may be due to {cause}, so it does not count" for cause, names in by_cause.items()]
    return tuple(kept), doubts


def _some(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
