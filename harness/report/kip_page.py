"""docs/kip-1279.md, a page for readers of the KIP: the states, the steps, and what runs on real clusters showed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from harness.report.kip_runs import KipRun
from harness.report.markdown_table import markdown_table
from harness.report.scoreboard import Claim, ClaimResult
from harness.report.scoreboard_page import row as claim_row
from mirrors.reference.server.states import EDGES
from mirrors.reference.server.steps import ABOUT

Outcomes = Mapping[tuple[str, str], str]
"""(leg, step) → outcome: a table of docs/crash-points.md or docs/pauses.md."""

_ROW: Final = re.compile(r"^\| (failover|failback) \| `([a-z_.]+)` \| (.+?) \| [^|]*\|$", re.MULTILINE)


def outcomes(page: str) -> Outcomes:
    """The rows of docs/crash-points.md or docs/pauses.md."""
    return {(leg, step): outcome for leg, step, outcome in _ROW.findall(page)}


def markdown(
    runs: Sequence[KipRun],
    *,
    revisions: Sequence[tuple[Claim, Sequence[ClaimResult]]],
    kills: Outcomes,
    pauses: Outcomes,
) -> str:
    """The page. revisions: the claims about revisions of the design, with their results."""
    parts = [
        "# KIP-1279 under faults",
        "",
        _INTRO,
        "",
        *_states(),
        *_steps(kills, pauses),
        *_runs(runs),
        *_revisions(revisions),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _states() -> list[str]:
    edges = [f"    {old} --> {new}" for old, following in EDGES.items() for new in sorted(following)]
    return ["## The state machine", "", _STATES, "", "```mermaid", "stateDiagram-v2", *edges, "```", ""]


def _steps(kills: Outcomes, pauses: Outcomes) -> list[str]:
    rows = [
        (f"`{step}`", about, *(found.get((leg, step), "") for found in (kills, pauses) for leg in _LEGS))
        for step, about in ABOUT.items()
    ]
    head = ("step", "what has been done", *(f"{what} in a {leg}" for what in ("kill", "pause") for leg in _LEGS))
    return ["## The steps, and a kill or a pause at each", "", _STEPS, "", *markdown_table(head, rows), ""]


def _runs(runs: Sequence[KipRun]) -> list[str]:
    def key(run: KipRun) -> tuple[str, str, str, tuple[str, ...]]:
        return run.implementation, run.scenario, run.workload, run.nemesis

    rows = []
    for (implementation, scenario, workload, nemesis), group in groupby(sorted(runs, key=key), key=key):
        same = list(group)
        faults = ", ".join(f"`{fault}`" for fault in nemesis) or "none"
        rows.append((implementation, scenario, workload, faults, *_results(same)))
    head = ("implementation", "scenario", "workload", "faults", "verdicts", "found", "RPO, records")
    return ["## Runs under faults", "", _RUNS, "", *markdown_table(head, rows), ""]


def _results(runs: Sequence[KipRun]) -> tuple[str, str, str]:
    verdicts = Counter(run.verdict for run in runs)
    found: Counter[str] = Counter()
    for run in runs:
        found.update(run.found)
    forbidden = {kind for run in runs for kind in run.forbidden}
    kinds = [f"**{kind}** {count}" if kind in forbidden else f"{kind} {count}" for kind, count in sorted(found.items())]
    lost = [n for run in runs for name, n in run.figures.items() if name.endswith("records")]
    return (
        ", ".join(f"{verdict} {verdicts[verdict]} of {len(runs)}" for verdict in sorted(verdicts)),
        ", ".join(kinds) or "nothing",
        f"{min(lost)} to {max(lost)}" if lost else "",
    )


def _revisions(board: Sequence[tuple[Claim, Sequence[ClaimResult]]]) -> list[str]:
    rows = [claim_row(claim, one)[:5] for claim, results in board for one in results]
    head = ("claim", "design", "should", "found by", "result")
    return ["## Revisions of the design", "", _REVISIONS, "", *markdown_table(head, rows), ""]


_LEGS: Final = ("failover", "failback")
_INTRO: Final = (
    "Generated from runs on real clusters (`shatter kip --write docs`); do not edit. No release of Kafka has Cluster "
    "Mirroring. The reference mirror implements it on unmodified brokers, with every decision of the design threads "
    "as a switch (designs.md). A build of the authors' branch is tested by the mirror `native` (mirrors.md); its runs "
    "appear here when the page is written from a folder that has some."
)
_STATES: Final = (
    "Of one partition of the reference mirror. The authors' branch calls PREPARING LOG_TRUNCATION and EPOCH_FENCING. A "
    "transition that is not in the graph is the anomaly `state_graph`."
)
_STEPS: Final = (
    "In their order, for the reference mirror with the design `strict`. *held*: the partition reached the requested "
    "state, all replicas are byte-identical below the cut, and every acknowledged record below the cut is readable at "
    "its offset. The conditions are stated in crash-points.md (killed with SIGKILL, another process started at once) "
    "and pauses.md (paused for longer than the session, while a second process takes over). Empty: the step does not "
    "occur in that direction, or was not run."
)
_RUNS: Final = (
    "One row for all runs of the same test, over their seeds; other designs of the reference mirror are in claims.md. "
    "**Bold** kinds are those that the contract of the implementation never allows; the others are allowed or expected "
    "(contracts.md). RPO: records that the source had acknowledged when the stop was requested and that are not "
    "visible on the destination."
)
_REVISIONS: Final = (
    "What the presets of the KIP's revisions break, and that `strict` holds in the same test. All claims: claims.md."
)
