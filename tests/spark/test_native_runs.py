"""What runs of the authors' own build of KIP-1279 showed, anomaly by anomaly: which records, at which offsets, and not
one more. The stories of told_turns and told_regressions have the kinds; these have the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Find
from literal import History, values
from pyspark.sql import SparkSession

from checkers.clients import end_offset_regressed, lost_write
from checkers.judge.judge import judge
from checkers.logs import transactions_log
from checkers.mirror import copy_gone, failback

TOPIC = "t"
PLACE = {"topic": TOPIC, "partition": 0}
STRICT: dict[str, Any] = {
    "test": {"contract": "cluster-mirror/strict"},
    "clusters": {"A": {}, "B": {}},
    "topic_map": {TOPIC: TOPIC},
}


class Run(History):
    """A history of one partition in which every snapshot has its own time."""

    def state(self, state: str, cluster: str = "B", **columns: Any) -> None:
        self._index += 1
        self.row("mirror_states", mirror="m", cluster=cluster, state=state, event="look", **PLACE, **columns)

    def ends(self, end: int, cluster: str = "B", *, epoch: int | None = 5, **columns: Any) -> None:
        self._index += 1
        own = {"log_start": 0, "log_end": end, "high_watermark": end, "last_stable": end, **columns}
        self.row("log_ends", cluster=cluster, broker=1, leader=1, leader_epoch=epoch, look=0, **PLACE, **own)

    def fault(self, name: str, cluster: str = "A") -> None:
        self._index += 1
        self.row("faults", fault_id=0, name=name, cluster=cluster, action="bit", ok=True)

    def step(self, f: str, cluster: str) -> None:  # type: ignore[override]
        """An acknowledged operation on the mirror to this cluster."""
        op = self.event("scenario", "invoke", f, cluster=cluster)
        self.event("scenario", "ok", f, cluster=cluster, invoke_index=op)


def shown(rows: list[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[c] for c in ("form", "cluster", *columns)) for row in rows)


def cut_again_and_again() -> Run:
    """Two cuts of B's copy to 0 and one to 3, each under states that no start brought about."""
    h = Run(**STRICT)
    h.state("MIRRORING")
    for end, state in ((5, "FAILED"), (0, "PREPARING"), (7, "UNKNOWN"), (0, "MIRRORING"), (9, "FAILED"), (3, "FAILED")):
        h.ends(end)
        h.state(state)
        h.state("MIRRORING")
    h.ends(9)
    return h


def test_every_cut_below_the_high_watermark_is_one_row(find: Find) -> None:
    rows = find(end_offset_regressed.CHECKER, cut_again_and_again())
    assert shown(rows, "offset") == [
        (form, "B", offset) for form in ("high_watermark", "last_stable", "log_end") for offset in (0, 0, 3)
    ]
    assert "went back from 7 to 0 within leader epoch 5" in str([row["explain"] for row in rows])


def test_what_had_been_reached_before_each_cut(find: Find) -> None:
    rows = find(copy_gone.CHECKER, cut_again_and_again())
    reached = [row["explain"].split("had reached offset ")[1].split(" ")[0] for row in rows]
    assert sorted(zip((row["offset"] for row in rows), reached, strict=True)) == [(0, "5"), (0, "7"), (3, "9")]


@pytest.mark.parametrize("states", [("STOPPED", "PREPARING"), ("STOPPED", "FAILED", "LOG_TRUNCATION"), ("STOPPED",)])
def test_a_real_start_excuses_one_cut_and_only_until_it_is_mirroring(find: Find, states: tuple[str, ...]) -> None:
    h = Run(**STRICT)
    h.state("MIRRORING")
    h.ends(5)
    for state in states:
        h.state(state)
    h.ends(2, epoch=6)
    h.state("MIRRORING")
    h.ends(5, epoch=6)
    h.ends(4, epoch=6)
    assert shown(find(copy_gone.CHECKER, h), "offset") == [("seen", "B", 4)]
    regressed = find(end_offset_regressed.CHECKER, h)
    assert {row["offset"] for row in regressed} == {4}


def test_one_cut_per_unclean_election_is_followed(find: Find) -> None:
    """The copy follows the source's election at once; a second drop, without another election, is not its doing."""
    h = Run(**STRICT)
    h.state("MIRRORING")
    h.ends(5)
    h.fault("unclean-election")
    h.ends(3)
    h.ends(6)
    h.ends(4)
    rows = find(end_offset_regressed.CHECKER, h)
    assert shown(rows, "offset") == [(form, "B", 4) for form in ("high_watermark", "last_stable", "log_end")]


def test_a_deposed_leader_that_is_asked_late_takes_nothing_back(find: Find) -> None:
    h = Run(**STRICT)
    h.state("MIRRORING")
    h.ends(5, epoch=5)
    h.ends(8, epoch=6)
    h.ends(6, epoch=5)
    assert not find(end_offset_regressed.CHECKER, h)


def stopped_at(end: int, **test: Any) -> Run:
    """A stop after which B's copy, which ended at 5 with its last stable offset at 3, ends here."""
    h = Run(**{**STRICT, "test": {**STRICT["test"], **test}})
    h.state("MIRRORING")
    h.ends(5, last_stable=3)
    h.step("mirror_stop", "B")
    h.state("STOPPED")
    h.ends(end, epoch=6)
    return h


@pytest.mark.parametrize(
    ("end", "test", "gone"),
    [(3, {}, False), (2, {}, True), (4, {"mirror_options": {"on_stop": "abort_open_transactions"}}, True)],
)
def test_a_stop_may_cut_to_the_last_stable_offset_if_no_design_says_otherwise(
    find: Find, end: int, test: dict[str, Any], gone: bool
) -> None:
    want = [("seen", "B", end)] if gone else []
    assert shown(find(copy_gone.CHECKER, stopped_at(end, **test)), "offset") == want
    forms = {row["form"] for row in find(end_offset_regressed.CHECKER, stopped_at(end, **test))}
    assert forms == ({"high_watermark"} if gone else set())


def round_trip() -> Run:
    """A→B, B→A, A→B with ten writes on A in the middle, of which m3 to m5 and m9 are in no log; `old` and `older` are
    above the first cut, and the mirror says that they are discarded."""
    h = Run(**STRICT)
    h.state("MIRRORING")
    h.send("p", "A", TOPIC, 0, "a", "b", "old", "older", offset=0)
    h.step("mirror_stop", "B")
    h.state("STOPPED", source_offset=2, destination_offset=2)
    h.send("q", "B", TOPIC, 0, "w", offset=2)
    h.step("mirror_failback", "A")
    for state in ("PREPARING", "MIRRORING"):
        h.state(state, "A", error="offsets 2 to 2 of this log are discarded, to mirror over them")
    h.step("mirror_stop", "A")
    h.state("STOPPED", "A", source_offset=3, destination_offset=3)
    h.send("r", "A", TOPIC, 0, *(f"m{i}" for i in range(10)), offset=3)
    h.step("mirror_failback", "B")
    h.state("MIRRORING")
    kept = [(0, "a"), (1, "b"), (2, "w"), *((3 + i, f"m{i}") for i in range(9) if i not in (3, 4, 5))]
    for cluster in "AB":
        h.log(cluster, TOPIC, 0, *kept, log_end=13)
    return h


def test_each_write_that_is_lost_between_two_turns_is_one_row(find: Find) -> None:
    lost = find(lost_write.CHECKER, round_trip())
    assert values(lost) == {"m3", "m4", "m5", "m9"}
    assert shown(lost, "offset") == [("gone", "A", offset) for offset in (6, 7, 8, 12)]


def test_a_write_that_the_report_leaves_out_is_one_row(find: Find) -> None:
    """Offset 2 is reported; 3 is not."""
    rows = find(failback.CHECKER, round_trip())
    assert [(row["form"], row["value"], row["offset"]) for row in rows] == [("unreported", "older", 3)]


def taken_over() -> Run:
    """A's old log is looked at under the takeover's epoch 20, before it is truncated; the log that it gets has a
    transaction of B, with B's older epoch 11, where `o1` to `o3` were."""
    of = {"producer_id": 7, "producer_epoch": 0, "transactional": True, "leader_epoch": 11}
    h = Run(**STRICT)
    h.send("p", "A", TOPIC, 0, "a", "o1", "o2", "o3", offset=0)
    h.step("mirror_stop", "B")
    h.state("STOPPED", source_offset=1, destination_offset=1)
    h.state("PREPARING", "A")
    h.ends(4, "A", epoch=20)
    h.state("MIRRORING", "A")
    for cluster in "AB":
        marker = (4, None, {**of, "control_type": "COMMIT"})
        h.log(cluster, TOPIC, 0, (0, "a"), (2, "x", of), (3, "v", {"leader_epoch": 11}), marker)
    return h


def test_a_look_between_takeover_and_mirroring_proves_nothing_about_the_last_stable_offset(find: Find) -> None:
    assert not [row for row in find(transactions_log.CHECKER, taken_over()) if row["kind"] == "lso_wrong"]


def cut_at_the_last_stable_offset(cut: int) -> Run:
    """B has a transaction with its marker; a stop cuts the marker off, and after the stop another one ends it."""
    of = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    test = {"contract": "cluster-mirror/strict", "mirror_options": {"on_stop": "truncate_to_last_stable"}}
    h = Run(**{**STRICT, "test": test})
    h.send("p", "A", TOPIC, 0, "a", "b", offset=0)
    h.state("MIRRORING")
    h.ends(4, epoch=1, last_stable=2)
    h.step("mirror_stop", "B")
    h.state("STOPPED", source_offset=cut, destination_offset=cut)
    marker = (6, None, {**of, "producer_epoch": 1, "control_type": "ABORT"})
    h.log("B", TOPIC, 0, (0, "a"), (1, "b", of), (2, "v"), (3, "w"), (4, "x"), (5, "y"), marker)
    return h


@pytest.mark.parametrize(("cut", "found"), [(2, []), (7, [(None, "B", 1)])])
def test_a_stop_may_cut_the_marker_off_that_a_snapshot_counted(
    find: Find, cut: int, found: list[tuple[str | None, str, int]]
) -> None:
    rows = [
        row for row in find(transactions_log.CHECKER, cut_at_the_last_stable_offset(cut)) if row["kind"] == "lso_wrong"
    ]
    assert shown(rows, "offset") == found


def test_the_same_look_after_mirroring_does(find: Find) -> None:
    h = taken_over()
    (row,) = [row for row in h.tables["log_ends"] if row.get("leader_epoch") == 20]
    h.row("log_ends", **{**row, "time_ns": h.now})
    rows = [row for row in find(transactions_log.CHECKER, h) if row["kind"] == "lso_wrong"]
    assert shown(rows, "offset") == [(None, "A", 2)]


def swallowed(**capabilities: bool) -> Run:
    """A local write on B is acknowledged at the offset of a mirrored batch of the same producer id, and is nowhere."""
    stated = {name: {"yes": yes} for name, yes in capabilities.items()}
    of = {"producer_id": 5, "producer_epoch": 0, "sequence": 0}
    h = Run(**{**STRICT, "test": {"contract": "cluster-mirror/kip-2026-07"}, "capabilities": stated})
    h.send("p", "A", TOPIC, 0, "m", offset=0, producer_id=5, producer_epoch=0)
    h.log("A", TOPIC, 0, (0, "m", of))
    h.step("mirror_stop", "B")
    h.state("STOPPED", source_offset=1, destination_offset=1)
    h.send("q", "B", TOPIC, 0, "w", offset=0, producer_id=5, producer_epoch=0)
    h.send("q2", "B", TOPIC, 0, "v", offset=2, producer_id=9, producer_epoch=0)
    reset = (1, None, {"control_type": "PID_RESET", "leader_epoch": 11})
    h.log("B", TOPIC, 0, (0, "m", of), reset, (2, "v", {"producer_id": 9, "producer_epoch": 0, "leader_epoch": 11}))
    return h


@pytest.mark.parametrize("honoured", [False, True])
def test_a_build_that_honours_the_reset_is_not_excused(spark: SparkSession, tmp_path: Path, honoured: bool) -> None:
    judgement = judge(swallowed(pid_reset_honoured=honoured).write(tmp_path / "run"), None, spark)
    swallowing = {f.kind.name: f.breaches for f in judgement.findings if f.kind.name != "unseen"}
    assert set(swallowing) == {"pid_swallowed", "lost_write", "ack_mismatch"}
    assert set(swallowing.values()) == ({1} if honoured else {0})
    assert (judgement.verdict == "invalid") is honoured
