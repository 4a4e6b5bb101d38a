"""Why a clean result would prove nothing: the run did not finish, its reads were cut off, or nothing happened in it."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import functions as F

from checkers.base import Severity
from checkers.judge.judgement import Finding
from checkers.judge.statistics import unfinished_reads
from checkers.views.tables import Tables
from harness.history.edn import sidecar as left_out
from harness.history.store import StoredRun

_THINGS_IN_ITSELF = (
    *("records", "group_offsets", "mirror_states", "acls", "mirror_names", "metrics", "objects", "object_refs"),
)
"""Tables whose rows can be judged, whatever clients did."""


def why_unfinished(run: StoredRun) -> list[str]:
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


def why_uncertain(run: StoredRun, findings: Iterable[Finding]) -> list[str]:
    """Why a clean result would prove nothing: what was left out or cut off, and the findings of severity unknown."""
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


def why_nothing_is_proven(t: Tables) -> list[str]:
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
