"""Stories of one cluster: what its replicas' logs show. Docstrings name the reports that they come from."""

from __future__ import annotations

from jsonl_story import Lines
from told_clients import ABORT, COMMIT, KAFKA, T1

__all__ = ["KAFKA"]  # with the stories of both files


@KAFKA.story("duplicate")
def written_again_under_the_next_epoch(h: Lines, fault: bool) -> None:
    """redpanda#3039: after OutOfOrderSequence the client bumps its epoch and sends again what was already stored."""
    h.send("A", "v0", at=0, p=3, pid=1, epoch=0, seq=0)
    h.send("A", "v1", at=2, p=3, pid=1, epoch=1, seq=0, retry=True)
    again = "v0" if fault else "v9"
    if not fault:
        h.send("A", "v9", at=1, p=3, by="p9")
    h.dump(
        "A",
        (0, "v0", {"pid": 1, "pepoch": 0, "lepoch": 0}),
        (1, again, {"pid": 1, "pepoch": 1, "lepoch": 1} if fault else {"pid": 2, "pepoch": 0, "lepoch": 1}),
        (2, "v1", {"pid": 1, "pepoch": 1, "lepoch": 1}),
        p=3,
    )


@KAFKA.story("late_write", "lso_wrong")
def produce_request_that_came_after_the_timeout(h: Lines, fault: bool) -> None:
    """KIP-890: the coordinator aborted; the delayed record opens a transaction that no marker ends."""
    h.txn("A", "begin", "T1")
    h.send("A", "q0", at=100, p=5, txn="T1", pid=7, epoch=0)
    h.line("nemesis", "info", "delay_rpc", rpc="Produce")
    h.txn("A", "abort", "T1", by="coordinator")
    h.send("A", "q1", at=102, p=5, txn="T1", pid=7, epoch=0, end="info" if fault else "fail", error="timeout")
    h.send("A", "n", at=103 if fault else 102, p=5, by="p2")
    late = [(102, "q1", T1)] if fault else []
    records = [(100, "q0", T1), (101, None, ABORT), *late, (103 if fault else 102, "n")]
    h.dump("A", *records, p=5, log_start=100, lso=102 if fault else 103)


@KAFKA.story("end_offset_regressed/high_watermark", "end_offset_regressed/last_stable")
def high_watermark_goes_back(h: Lines, fault: bool) -> None:
    """KIP-207: consumers see a lower end offset than before; only a new leader may return that."""
    h.dump("A", (0, "x"), (1, "y"), hw=2, lso=2, leader_epoch=4)
    h.send("A", "x", "y", at=0)
    h.dump("A", (0, "x"), (1, "y"), hw=1, lso=1, leader_epoch=4 if fault else 5)
    h.dump("A", (0, "x"), (1, "y"), hw=2, lso=2, leader_epoch=5)


@KAFKA.story("sequence_gap")
def hole_in_the_sequences(h: Lines, fault: bool) -> None:
    """KIP-360: a record that the producer sent in between is missing."""
    h.send("A", "a", "b", at=0, pid=3, epoch=0)
    h.send("A", "c", end="info", pid=3, epoch=0)
    h.send("A", "d", at=2, pid=3, epoch=0)
    producer = {"pid": 3, "pepoch": 0, "lepoch": 0}
    numbered = [("a", 0), ("b", 1), ("d", 3 if fault else 2)]
    h.dump("A", *((o, v, {**producer, "seq": s}) for o, (v, s) in enumerate(numbered)))


@KAFKA.story("pid_collision")
def one_id_for_two_producers(h: Lines, fault: bool) -> None:
    """Two producers write under one (id, epoch); in the twin each has its own."""
    other = 3 if fault else 4
    h.send("A", "a", at=0, by="p1", pid=3, epoch=0)
    h.send("A", "b", at=1, by="p2", pid=other, epoch=0)
    h.dump("A", (0, "a", {"pid": 3, "pepoch": 0, "lepoch": 0}), (1, "b", {"pid": other, "pepoch": 0, "lepoch": 0}))


@KAFKA.story("epoch_regressed")
def zombie_producer_writes_after_its_successor(h: Lines, fault: bool) -> None:
    """KIP-360, KIP-890: a record of a fenced epoch after one of the new epoch."""
    h.send("A", "a", at=0, pid=3, epoch=1)
    h.send("A", "z", at=1, end="info", pid=3, epoch=0)
    of = {"pid": 3, "lepoch": 0}
    h.dump("A", (0, "a", {**of, "pepoch": 1}), (1, "z", {**of, "pepoch": 0 if fault else 1}))


@KAFKA.story("marker_missing")
def committed_without_a_marker(h: Lines, fault: bool) -> None:
    """redpanda#6018: when the coordinator moves, the marker of one partition is lost."""
    h.txn("A", "begin", "T1")
    h.send("A", "x", at=0, p=0, txn="T1", pid=7, epoch=0)
    h.send("A", "y", at=0, p=1, txn="T1", pid=7, epoch=0)
    h.txn("A", "commit", "T1")
    h.dump("A", (0, "x", T1), (1, None, COMMIT), p=0)
    if fault:
        h.dump("A", (0, "y", T1), p=1, lso=0)
    else:
        h.dump("A", (0, "y", T1), (1, None, COMMIT), p=1)


@KAFKA.story("lso_wrong")
def last_stable_offset_above_an_open_transaction(h: Lines, fault: bool) -> None:
    """dev@kafka msg155640: readers may read beyond an open transaction."""
    h.txn("A", "begin", "T1")
    h.send("A", "x", at=0, txn="T1", pid=7, epoch=0)
    h.send("A", "y", at=1, by="p2")
    h.dump("A", (0, "x", T1), (1, "y"), lso=2 if fault else 0)


@KAFKA.story("replica_divergence")
def one_follower_lacks_a_record(h: Lines, fault: bool) -> None:
    """KIP-101: truncation to the high watermark left a gap in a follower's log."""
    h.send("A", "a", "b", "c", at=0)
    whole = [(0, "a"), (1, "b"), (2, "c")]
    for replica in (1, 2, 3):
        h.dump("A", *([whole[0], whole[2]] if fault and replica == 3 else whole), replica=replica, leader=1)


@KAFKA.story("crc_invalid")
def batch_with_a_wrong_checksum(h: Lines, fault: bool) -> None:
    """A damaged disk."""
    h.send("A", "a", at=0)
    h.dump("A", (0, "a", {"crc": 17, "crc_ok": not fault}))


@KAFKA.story("lost_write/gone")
def topic_deleted_and_made_again(h: Lines, fault: bool) -> None:
    """Records deleted with the topic are not lost; those missing from the new one are. Offsets restart at 0."""
    h.send("A", "old0", "old1", at=0)
    h.dump("A", (0, "old0"), (1, "old1"))
    for f in ("delete_topic", "create_topic"):
        h.both("admin", f, cluster="A", topic=h.topic("t"))
    h.send("A", "new0", "new1", at=0)
    h.dump("A", (0, "new0"), *([] if fault else [(1, "new1")]), leo=2)


@KAFKA.story("stuck/last_stable")
def end_of_the_stable_part_stands_still(h: Lines, fault: bool) -> None:
    """KAFKA-9144: the last stable offset stays below the high watermark although no transaction is open."""
    h.send("A", "a", "b", at=0)
    h.dump("A", (0, "a"), (1, "b"), lso=0)
    h.wait(100_000 if fault else 1_000)
    h.dump("A", (0, "a"), (1, "b"), lso=0)
    if not fault:
        h.dump("A", (0, "a"), (1, "b"))


@KAFKA.story("aborted_read/aborted")
def abort_told_by_a_producer_id_alone(h: Lines, fault: bool) -> None:
    """The log names no transaction; the marker of the same producer id shows that its data was aborted."""
    h.txn("A", "begin", "T1")
    h.send("A", "x", at=0, txn="T1", pid=7, epoch=0)
    h.txn("A", "abort", "T1")
    plain = {"pid": 7, "pepoch": 0, "lepoch": 0}
    h.dump("A", (0, "x", plain), (1, None, {**plain, "ctl": "ABORT"}))
    h.poll("A", (0, "x"), isolation="read_committed" if fault else "read_uncommitted")


@KAFKA.story("aborted_read/aborted")
def abort_told_by_the_name_alone(h: Lines, fault: bool) -> None:
    """The log names transactions and no producer ids."""
    h.send("A", "x", end="info", txn="T1")
    h.send("A", "y", at=2, txn="T2", by="p2")
    if fault:
        h.txn("A", "abort", "T1")
    (one, two) = ({"txn": "T1"}, {"txn": "T2"})
    first = {**one, "ctl": "ABORT" if fault else "COMMIT"}
    h.dump("A", (0, "x", one), (1, None, first), (2, "y", two), (3, None, {**two, "ctl": "COMMIT"}))
    h.poll("A", (0, "x"), (2, "y"), isolation="read_committed")


@KAFKA.story("end_offset_regressed/log_end", "end_offset_regressed/high_watermark", "end_offset_regressed/last_stable")
def log_end_goes_back_under_one_leader(h: Lines, fault: bool) -> None:
    """A leader loses its unflushed tail and stays leader; in the twin the topic was recreated."""
    h.dump("A", leo=9, log_start=9, leader_epoch=4)
    if not fault:
        for f in ("delete_topic", "create_topic"):
            h.both("admin", f, cluster="A", topic=h.topic("t"))
    h.dump("A", leo=6, log_start=6, leader_epoch=4)
