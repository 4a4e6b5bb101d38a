"""Requests to a mirror that were refused, did not end, or did nothing, and starts that hang; with their clean twins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from stories import STRICT, Story

from checkers.clients import stuck
from checkers.groups import failover_refused
from checkers.views.tables import Tables

S = 10**9
OWN: dict[str, Any] = {"source": "shatter", **STRICT}


class Told(Story):
    """A history in which time passes in seconds."""

    def __init__(self, **meta: Any) -> None:
        super().__init__(**meta)
        self.seconds = 0

    @property
    def now(self) -> int:
        return self.seconds * S + self._index + 1

    def ask(
        self, f: str, end: str, *, cluster: str = "B", by: str = "scenario", lasts: int = 0, **columns: Any
    ) -> None:
        """A request to the mirror and its answer, some seconds later; columns: of the answer, and `topic`."""
        target = [{"action": "target", "topic": columns.pop("topic")}] if "topic" in columns else []
        invoke = self.event(by, "invoke", f, target, cluster=cluster)
        self.seconds += lasts
        self.event(by, end, f, target, cluster=cluster, invoke_index=invoke, **columns)

    def end(self, cluster: str, topic: str, offset: int) -> None:
        """A log end."""
        self.at("log_ends", cluster=cluster, topic=topic, partition=0, high_watermark=offset)

    def fault(self, number: int, action: str, **columns: Any) -> None:
        """A step of a fault on A."""
        self.at("faults", fault_id=number, name="broker-kill", cluster="A", action=action, ok=True, **columns)


def found(spark: SparkSession, history: Told, folder: Path) -> list[tuple[Any, ...]]:
    """(kind, form, topic) of what the two checkers find, and their sentences."""
    tables = Tables.open(history.write(folder), spark)
    try:
        frames = [failover_refused.CHECKER.check(tables), stuck.CHECKER.check(tables)]
        rows = [row for frame in frames if frame is not None for row in frame.collect()]
    finally:
        tables.close()
    assert all(row["explain"] and "?" not in row["explain"] for row in rows), [row["explain"] for row in rows]
    return sorted((row["kind"], row["form"], row["topic"] or "", row["explain"]) for row in rows)


@pytest.mark.parametrize("twin", ["fault", "clean"])
def test_a_stop_that_is_refused_or_does_not_end_is_found(spark: SparkSession, tmp_path: Path, twin: str) -> None:
    """With the time for which it was tried, the reason that was stated, and the states that were described."""
    h = Told(**OWN)
    h.state("t", "MIRRORING")
    if twin != "clean":
        h.seconds = 10
        h.fault(1, "bit")
        invoke = h.event("scenario", "invoke", "mirror_stop", cluster="B")
        h.seconds = 55
        h.state("t", "FAILED", error="source does not answer")
        why = {"error": "refused", "error_text": "refused 40 times in 45 s: error 145"}
        h.event("scenario", "fail", "mirror_stop", cluster="B", invoke_index=invoke, **why)
        h.ask("mirror_stop", "info", cluster="C", lasts=90, error="timeout", error_text="u-0 is STOPPING")
    else:
        h.ask("mirror_stop", "ok", lasts=2)
        h.state("t", "STOPPED")
        h.ask("mirror_stop", "fail", by="admin", error="INVALID_STATE")  # of a topic that is stopped: rightly refused
    kind = "failover_refused"
    refused = (
        "B was not made writable: the stop of its mirror was refused, tried for 45.0 s: refused 40 times in 45 s: "
        "error 145; described then: t-0 FAILED (source does not answer)"
    )
    late = (
        "C was not made writable: the stop of its mirror did not end in 90.0 s: u-0 is STOPPING; "
        "described then: nothing"
    )
    expected = [(kind, "refused", "", refused), (kind, "timeout", "", late)] if twin != "clean" else []
    assert [row for row in found(spark, h, tmp_path / "run") if row[0] == kind] == expected


def test_a_request_that_is_acknowledged_and_does_nothing_is_found(spark: SparkSession, tmp_path: Path) -> None:
    h = Told(**OWN)
    for topic in ("obeyed", "ignored", "restarted"):
        h.state(topic, "MIRRORING")
        h.ask("mirror_stop", "ok", topic=topic)
    for topic, state in (("obeyed", "STOPPED"), ("ignored", "MIRRORING"), ("ignored", "MIRRORING")):
        h.state(topic, state)
    h.state("restarted", "PREPARING")
    h.state("restarted", "MIRRORING")
    for topic in ("grows", "rests", "resumed"):
        h.state(topic, "PAUSED")
        h.ask("mirror_pause", "ok", topic=topic)
        h.end("B", topic, 5)
    h.seconds = 11
    for topic in ("grows", "rests"):
        h.end("B", topic, 7)
    h.end("B", "rests", 7)
    h.end("B", "grows", 9)
    h.ask("mirror_resume", "ok", topic="resumed")
    h.seconds = 30
    for topic in ("grows", "resumed"):
        h.end("B", topic, 20)
    assert [row[:3] for row in found(spark, h, tmp_path / "run")] == [
        ("failover_refused", "ignored", "grows"),
        ("failover_refused", "ignored", "ignored"),
    ]


def hung(*, heals_at: int | None = None, mirrors_at: int | None = None) -> Told:
    """A start that is given up after 90 s; a fault from the 5th second on, and when everything is mirrored."""
    h = Told(**OWN)
    if heals_at is not None:
        h.seconds = 5
        h.fault(1, "bit")
    h.seconds = 10
    invoke = h.event("scenario", "invoke", "mirror_failback", cluster="B")
    h.state("t", "PREPARING", error="waits for the source")
    h.state("u", "MIRRORING")
    late = {heals_at: lambda: h.fault(1, "heal"), mirrors_at: lambda: h.state("t", "MIRRORING")}
    for second in range(11, 200):
        h.seconds = second
        if second == 100:
            why = {"error": "timeout", "error_text": "waited 90 s for a probe record"}
            h.event("scenario", "info", "mirror_failback", cluster="B", invoke_index=invoke, **why)
        if second in late:
            late[second]()
    h.event("p", "invoke", "send", cluster="B")
    return h


@pytest.mark.parametrize(
    ("told", "stuck_for"),
    [
        (hung(), "189.0"),
        (hung(mirrors_at=60), None),
        (hung(mirrors_at=101), "91.0"),
        (hung(heals_at=30), "169.0"),
        (hung(heals_at=30, mirrors_at=80), None),
        (hung(heals_at=120), None),
    ],
    ids=["hangs", "late", "later", "healed", "healed-late", "never-healed"],
)
def test_a_start_that_hangs_is_stuck_with_the_states_that_were_described(
    spark: SparkSession, tmp_path: Path, told: Told, stuck_for: str | None
) -> None:
    rows = [row for row in found(spark, told, tmp_path / "run") if row[1] == "start"]
    if stuck_for is None:
        assert not rows
        return
    ((kind, _, _, explain),) = rows
    assert kind == "stuck"
    assert f"not mirroring everything {stuck_for} s after" in explain
    assert "described then: t-0 PREPARING (waits for the source), u-0 MIRRORING" in explain
