"""Records that a failback discards are a separate branch of the log: no anomalies, unless there was no failback."""

from __future__ import annotations

from pathlib import Path

import pytest
from literal import History
from pyspark.sql import SparkSession

from checkers.judge.judge import judge
from checkers.views.tables import Tables

TOPIC = "t"
MIRROR = {"mirror": "A-B", "topic": TOPIC, "partition": 0}
DISCARDED = "offsets 2 to 3 are discarded"


def stop_at(h: History, cut: int) -> None:
    op = h.event("scenario", "invoke", "mirror_stop", cluster="B")
    h.row("mirror_states", cluster="B", state="STOPPED", source_offset=cut, destination_offset=cut, **MIRROR)
    h.event("scenario", "ok", "mirror_stop", cluster="B", invoke_index=op)


def mirror_back(h: History, f: str = "mirror_failback") -> None:
    op = h.event("scenario", "invoke", f, cluster="A")
    h.row("mirror_states", cluster="A", state="MIRRORING", error=DISCARDED, **MIRROR)
    h.event("scenario", "ok", f, cluster="A", invoke_index=op)


def moved(*, failed_back: bool) -> History:
    """A failover at offset 2 under load, and a mirror from B to A; recorded as a failback, or not."""
    h = History(clusters={"A": {}, "B": {}}, topic_map={TOPIC: TOPIC})
    h.send("p", "A", TOPIC, 0, "a", "b", "old", "older", offset=0)
    h.poll("c", "A", TOPIC, 0, (0, "a"), (1, "b"), (2, "old"), (3, "older"))
    stop_at(h, 2)
    h.send("q", "B", TOPIC, 0, "new", "newer", offset=2)
    mirror_back(h, "mirror_failback" if failed_back else "mirror_start")
    h.poll("d", "A", TOPIC, 0, (0, "a"), (1, "b"), (2, "new"), (3, "newer"))
    for cluster in ("A", "B"):
        h.log(cluster, TOPIC, 0, (0, "a"), (1, "b"), (2, "new"), (3, "newer"))
    return h


def client_kinds(folder: Path, spark: SparkSession) -> dict[str, int]:
    findings = judge(folder, "cluster-mirror/strict", spark).findings
    return {found.kind.name: found.count for found in findings if found.kind.section == 1}


@pytest.mark.parametrize("large", [False, True], ids=["small", "sieved"])
def test_records_above_the_cut_are_judged_among_themselves(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        monkeypatch.setattr("checkers.views.tables.SMALL_ROWS", 0)
    assert client_kinds(moved(failed_back=True).write(tmp_path / "back"), spark) == {}
    assert client_kinds(moved(failed_back=False).write(tmp_path / "not"), spark) == {"inconsistent_offsets": 2}


def test_a_commit_above_the_cut_is_discarded_with_its_record_below(spark: SparkSession, tmp_path: Path) -> None:
    """A's transaction was committed above the cut: B aborts it at the stop, and so does A after the failback."""
    of = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    h = History(clusters={"A": {}, "B": {}}, topic_map={TOPIC: TOPIC})
    h.send("p", "A", TOPIC, 0, "a", offset=0)
    h.send("p2", "A", TOPIC, 0, "x", offset=1, txn="T")
    h.step("p2", "txn_commit", "A", "T")
    h.poll("c", "A", TOPIC, 0, (0, "a"), (1, "x"), isolation="read_committed")
    stop_at(h, 2)
    h.send("q", "B", TOPIC, 0, "new", offset=3)
    mirror_back(h)
    for cluster in ("A", "B"):
        h.poll(f"raw-{cluster}", cluster, TOPIC, 0, (0, "a"), (1, "x"), (3, "new"))
        h.poll(f"d-{cluster}", cluster, TOPIC, 0, (0, "a"), (3, "new"), isolation="read_committed")
        h.log(cluster, TOPIC, 0, (0, "a"), (1, "x", of), (2, None, {**of, "control_type": "ABORT"}), (3, "new"))
    assert client_kinds(h.write(tmp_path / "run"), spark) == {}


@pytest.mark.parametrize(("back", "torn"), [(True, 0), (False, 1)], ids=["discarded", "by-itself"])
@pytest.mark.parametrize("large", [False, True], ids=["small", "sieved"])
def test_a_transaction_of_which_one_marker_was_below_the_cut_is_in_part_discarded(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool, torn: int, large: bool
) -> None:
    """All of A was killed when a transaction was decided, and had written one of its two markers (campaign disaster,
    seed 6); or A itself aborts half of it."""
    if large:
        monkeypatch.setattr("checkers.views.tables.SMALL_ROWS", 0)
    of = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    h = History(clusters={"A": {}, "B": {}}, topic_map={TOPIC: TOPIC})
    h.send("p2", "A", TOPIC, 0, "x", offset=0, txn="T")
    h.send("p2", "A", TOPIC, 1, "y", offset=0, txn="T")
    h.step("p2", "txn_commit", "A", "T")
    h.poll("c", "A", TOPIC, 1, (0, "y"), isolation="read_committed")
    if back:
        op = h.event("scenario", "invoke", "mirror_stop", cluster="B")
        for partition, cut in ((0, 1), (1, 2)):
            place = {**MIRROR, "partition": partition}
            h.row("mirror_states", cluster="B", state="STOPPED", source_offset=cut, destination_offset=cut, **place)
        h.event("scenario", "ok", "mirror_stop", cluster="B", invoke_index=op)
        op = h.event("scenario", "invoke", "mirror_failback", cluster="A")
        for partition in (0, 1):
            place = {**MIRROR, "partition": partition}
            h.row("mirror_states", cluster="A", state="MIRRORING", error=DISCARDED, **place)
        h.event("scenario", "ok", "mirror_failback", cluster="A", invoke_index=op)
    h.send("q", "B" if back else "A", TOPIC, 0, "late", offset=2)
    for cluster in ("A", "B"):
        h.poll(f"d-{cluster}", cluster, TOPIC, 0, (2, "late"), isolation="read_committed")
        h.poll(f"d-{cluster}", cluster, TOPIC, 1, (0, "y"), isolation="read_committed")
        h.log(cluster, TOPIC, 0, (0, "x", of), (1, None, {**of, "control_type": "ABORT"}), (2, "late"))
        h.log(cluster, TOPIC, 1, (0, "y", of), (1, None, {**of, "control_type": "COMMIT"}))
    assert client_kinds(h.write(tmp_path / "run"), spark).get("torn_transaction", 0) == torn


def test_each_failback_has_its_own_time_and_cut(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables.open(moved(failed_back=True).write(tmp_path / "run"), spark)
    try:
        ((place, failbacks),) = tables.failbacks.items()
        assert place == ("A", TOPIC, 0)
        assert [cut for _, cut in failbacks] == [2]
        eras = {(row.value, row.offset): row.era for row in tables.reads.collect()}
        assert eras == {("a", 0): 0, ("b", 1): 0, ("old", 2): -1, ("older", 3): -1, ("new", 2): 0, ("newer", 3): 0}
    finally:
        tables.close()


def failed_back_at(cut: int) -> History:
    """A failover and a failback at this offset, with writes to A at offsets that nobody knows: before and after it."""
    kept = ["a", "b"][:cut]
    h = History(clusters={"A": {}, "B": {}}, topic_map={TOPIC: TOPIC})
    for offset, value in enumerate(kept):
        h.send("p", "A", TOPIC, 0, value, offset=offset)
    h.send("p", "A", TOPIC, 0, "somewhere", "else")
    stop_at(h, cut)
    h.send("q", "B", TOPIC, 0, "new", offset=cut)
    mirror_back(h)
    h.send("p", "A", TOPIC, 0, "late")
    for cluster in ("A", "B"):
        h.log(cluster, TOPIC, 0, *enumerate([*kept, "new"]))
    return h


@pytest.mark.parametrize("large", [False, True], ids=["small", "sieved"])
@pytest.mark.parametrize(("cut", "unseen"), [(0, 0), (2, 2)])
def test_a_write_without_an_offset_may_have_been_above_the_cut(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool, cut: int, unseen: int
) -> None:
    """Where the whole log was discarded it was; one that was written after the failback is lost."""
    if large:
        monkeypatch.setattr("checkers.views.tables.SMALL_ROWS", 0)
    found = {"lost_write": 1} | ({"unseen": unseen} if unseen else {})
    assert client_kinds(failed_back_at(cut).write(tmp_path / "run"), spark) == found
