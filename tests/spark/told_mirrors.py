"""Stories of a mirror that keeps offsets (KIP-1279): logs, stops, failbacks, unclean elections."""

from __future__ import annotations

from jsonl_story import Lines, Pack

STRICT = Pack("cluster-mirror/strict")
TRUNCATING = Pack("cluster-mirror/kip-2026-05")
UNCLEAN = Pack("cluster-mirror/strict+unclean-a")
RESET = {"pid": -1, "pepoch": -1, "lepoch": 11, "ctl": "MIRROR_PID_RESET"}
T1 = {"txn": "T1", "pid": 7, "pepoch": 0, "lepoch": 0}
COMMIT, ABORT = {"ctl": "COMMIT", **T1}, {"ctl": "ABORT", **T1, "lepoch": 11}


def plain(pid: int, epoch: int = 0) -> dict[str, int]:
    return {"pid": pid, "pepoch": epoch, "lepoch": 0}


@STRICT.story("lost_write/gone", "ack_mismatch/overlaid")
def local_writes_taken_for_mirrored_ones(h: Lines, fault: bool) -> None:
    """redpanda#31659 on two partitions: acknowledged at offsets of mirrored records, and not in the log."""
    for p in (0, 4):
        h.send("A", f"m{p}", at=0, p=p, pid=5, epoch=0, seq=0)
        h.dump("B", (0, f"m{p}", plain(5)), p=p)
    h.mirror("mirror_stop")
    h.send("B", "w0", at=1 if fault else 2, p=0, by="p2", pid=6, epoch=0, seq=0)
    h.send("B", "w4", at=0 if fault else 2, p=4, by="p2", pid=5, epoch=0, seq=0)
    reset = (1, None, RESET)
    if fault:
        h.dump("B", (0, "m0", plain(5)), (1, "w0", {**plain(6), "lepoch": 11}), p=0)
        h.dump("B", (0, "m4", plain(5)), p=4)
    else:
        h.dump("B", (0, "m0", plain(5)), reset, (2, "w0", {**plain(6), "lepoch": 11}), p=0)
        h.dump("B", (0, "m4", plain(5)), reset, (2, "w4", {**plain(5), "lepoch": 11}), p=4)


@STRICT.story("pid_collision")
def local_producer_goes_on_under_a_mirrored_id(h: Lines, fault: bool) -> None:
    """KIP-1279: without a reset the local producer's first batch continues a mirrored producer's sequence."""
    h.send("A", "m", at=0, pid=5, epoch=0, seq=0)
    h.dump("A", (0, "m", plain(5)))
    h.mirror("mirror_stop")
    h.send("B", "w", at=1 if fault else 2, by="p2", pid=5, epoch=0, seq=1)
    local = {**plain(5), "lepoch": 11}
    h.dump("B", (0, "m", plain(5)), *([(1, "w", local)] if fault else [(1, None, RESET), (2, "w", local)]))


@STRICT.story("transaction_outcome")
def committed_there_and_aborted_here_on_three_partitions(h: Lines, fault: bool) -> None:
    """KIP-1279's limit: a transaction over three partitions, open at the cut of each."""
    h.txn("A", "begin", "T1")
    for p in range(3):
        h.send("A", f"x{p}", at=7, p=p, txn="T1", pid=7, epoch=0)
    if not fault:
        h.txn("A", "commit", "T1")
    h.mirror("mirror_stop")
    if fault:
        h.txn("A", "commit", "T1")
    for p in range(3):
        h.dump("A", (7, f"x{p}", T1), (8, None, COMMIT), p=p, log_start=7)
        end = {**ABORT} if fault else {**COMMIT}
        h.dump("B", (7, f"x{p}", T1), (8, None, end), (9, None, RESET), p=p, log_start=7)


@STRICT.story("cross_partition")
def cut_between_two_partitions_of_a_transaction(h: Lines, fault: bool) -> None:
    """One partition was ahead at the stop: only half of the transaction was mirrored."""
    h.txn("A", "begin", "T1")
    h.send("A", "x", at=0, p=0, txn="T1")
    h.send("A", "y", at=0, p=1, txn="T1")
    h.txn("A", "commit", "T1")
    for p, value in enumerate("xy"):
        h.dump("A", (0, value, T1), (1, None, COMMIT), p=p)
    h.mirror("mirror_stop")
    h.dump("B", (0, "x", T1), (1, None, COMMIT), (2, None, RESET), p=0)
    carried = [] if fault else [(0, "y", T1), (1, None, COMMIT)]
    h.dump("B", *carried, (len(carried), None, RESET), p=1)


@STRICT.story("stop_cut")
def open_transaction_left_open_by_the_stop(h: Lines, fault: bool) -> None:
    """The stop must abort the transaction once, then reset producer ids."""
    h.txn("A", "begin", "T1")
    h.send("A", "x", at=0, txn="T1", pid=7, epoch=0)
    h.dump("A", (0, "x", T1), lso=0)
    h.mirror("mirror_stop", source_offset=1, destination_offset=1)
    if fault:
        h.dump("B", (0, "x", T1), (1, None, RESET), lso=0)
    else:
        h.dump("B", (0, "x", T1), (1, None, ABORT), (2, None, RESET))


@TRUNCATING.story("stop_cut")
def not_cut_off_at_the_last_stable_offset(h: Lines, fault: bool) -> None:
    """The revision of May 2026 truncates to the last stable offset at the stop."""
    h.txn("A", "begin", "T1")
    h.send("A", "a", at=0, by="p2")
    h.send("A", "x", at=1, txn="T1", pid=7, epoch=0)
    h.dump("A", (0, "a"), (1, "x", T1), lso=1)
    h.dump("B", (0, "a"), (1, "x", T1), lso=1)
    cut = 2 if fault else 1
    h.mirror("mirror_stop", source_offset=cut, destination_offset=cut)
    h.dump("B", (0, "a"), *([(1, "x", T1), (2, None, ABORT)] if fault else []))


@STRICT.story("failback/unreported")
def discarded_without_a_word(h: Lines, fault: bool) -> None:
    """A failback discards writes that only the old source had, and must report them."""
    h.send("A", "a", "b", at=0)
    h.dump("B", (0, "a"))
    h.mirror("mirror_stop", source_offset=1, destination_offset=1)
    h.send("A", "old", at=2)
    h.send("B", "w", at=2, by="p2")
    said = {} if fault else {"error": "2 records above the cut at 1 were discarded"}
    h.mirror("mirror_state", cluster="A", state="PREPARING", **said)
    h.mirror("mirror_state", cluster="A", state="MIRRORING", **said)
    for cluster in "AB":
        h.dump(cluster, (0, "a"), (1, None, RESET), (2, "w", {"lepoch": 11}))


@STRICT.story("gap_identity")
def gap_closed_up(h: Lines, fault: bool) -> None:
    """A gap left by a marker or by compaction must stay a gap."""
    h.send("A", "a", at=10)
    h.send("A", "b", at=12)
    h.send("A", "c", at=13)
    h.dump("A", (10, "a"), (12, "b"), (13, "c"), log_start=10)
    h.dump("B", (10, "a"), (11 if fault else 12, "b"), (13, "c"), log_start=10, mirror_of="A")


@STRICT.story("offset_identity")
def producer_rewritten(h: Lines, fault: bool) -> None:
    """A mirror that keeps producer ids must keep epochs too."""
    h.send("A", "a", "b", at=0, pid=5, epoch=0)
    h.dump("A", (0, "a", plain(5)), (1, "b", plain(5)))
    h.dump("B", (0, "a", plain(5)), (1, "b", plain(5, 1 if fault else 0)), mirror_of="A")


@STRICT.story("pid_negative", "offset_identity", "aborted_set")
def negated_ids_are_no_transactions_to_brokers(h: Lines, fault: bool) -> None:
    """dev@kafka msg155640: hasProducerId() is false, so the last stable offset advances and aborted data is read."""
    h.txn("A", "begin", "T1")
    h.send("A", "x", at=0, txn="T1", pid=7, epoch=0)
    h.txn("A", "abort", "T1")
    h.dump("A", (0, "x", T1), (1, None, {**ABORT, "lepoch": 0}), (2, "y"))
    h.send("A", "y", at=2, by="p2")
    pid = {"pid": -9 if fault else 7, "lepoch": 0}
    h.dump("B", (0, "x", {**T1, **pid}), (1, None, {**ABORT, **pid}), (2, "y"), mirror_of="A")


@STRICT.story("mirror_loss")
def hole_below_the_cut(h: Lines, fault: bool) -> None:
    """One of several partitions lacks a record; records above the cut are lag in both twins."""
    for p in range(3):
        h.send("A", *(f"v{p}{i}" for i in range(5)), at=0, p=p)
        h.dump("A", *((i, f"v{p}{i}") for i in range(5)), p=p)
    h.mirror("mirror_stop")
    for p in range(3):
        lost = 1 if fault and p == 2 else -1
        h.dump("B", *((i, f"v{p}{i}") for i in range(3) if i != lost), p=p)


@STRICT.story("marker_missing")
def marker_lost_on_the_way(h: Lines, fault: bool) -> None:
    """The transaction has ended on the source and stays open on the destination."""
    h.txn("A", "begin", "T1")
    h.send("A", "x", at=0, txn="T1", pid=7, epoch=0)
    h.txn("A", "commit", "T1")
    h.send("A", "y", at=2, by="p2")
    h.dump("A", (0, "x", T1), (1, None, COMMIT), (2, "y"))
    marker = [] if fault else [(1, None, COMMIT)]
    h.dump("B", (0, "x", T1), *marker, (2, "y"), lso=0 if fault else 3, mirror_of="A")


@STRICT.story("retention_gap")
def expired_before_it_was_carried(h: Lines, fault: bool) -> None:
    """The source's log start passed the destination's end while the mirror was down."""
    h.send("A", *(f"v{i}" for i in range(6)), at=0)
    h.dump("B", (0, "v0"), (1, "v1"))
    h.line("nemesis", "info", "retention", cluster="A", topic=h.topic("t"), partition=0, log_start=4)
    if not fault:
        h.mirror("mirror_state", state="MIRRORING", error="gap: offsets 2 to 3 expired on the source")
    h.dump("A", (4, "v4"), (5, "v5"), log_start=4)
    h.dump("B", (4, "v4"), (5, "v5"), log_start=4)


@STRICT.story("topic_id")
def another_topic_id(h: Lines, fault: bool) -> None:
    """KIP-516: a mirror with that capability keeps topic IDs."""
    h.send("A", "a", at=0)
    h.dump("A", (0, "a"), topic_id="Jx")
    h.dump("B", (0, "a"), topic_id="Ky" if fault else "Jx", mirror_of="A")


@STRICT.story("epoch_invariant/behind")
def leader_epoch_behind_the_source(h: Lines, fault: bool) -> None:
    """KIP-1279's invariant: otherwise consumers that come from the source refresh metadata for ever."""
    h.line("observer", "ok", "epochs", cluster="A", topic=h.topic("t"), partition=0, leader_epoch=7)
    h.line("observer", "ok", "epochs", cluster="B", topic=h.topic("t"), partition=0, leader_epoch=3 if fault else 7)


@STRICT.story("epoch_invariant/log")
def leader_epochs_go_back_in_the_log(h: Lines, fault: bool) -> None:
    """KIP-101: a batch of an older leader epoch after one of a newer epoch."""
    h.send("A", "a", "b", at=0)
    h.dump("A", (0, "a", {"lepoch": 4}), (1, "b", {"lepoch": 3 if fault else 5}))


@STRICT.story("epoch_invariant/local")
def local_write_under_a_mirrored_epoch(h: Lines, fault: bool) -> None:
    """Consumers cannot distinguish a local record from a truncated one."""
    h.send("A", "a", at=0)
    h.dump("A", (0, "a", {"lepoch": 6}))
    h.mirror("mirror_stop")
    h.send("B", "w", at=2, by="p2")
    h.dump("B", (0, "a", {"lepoch": 6}), (1, None, {**RESET, "lepoch": 7}), (2, "w", {"lepoch": 6 if fault else 7}))
    if fault:  # the reset too, or the write's epoch would go back
        h.events[-1]["value"][1]["lepoch"] = 6


@STRICT.story("epoch_invariant/stalled")
def consumer_refused_for_its_epoch(h: Lines, fault: bool) -> None:
    """KIP-320: the consumer knows a newer epoch than the destination and asks for metadata for ever."""
    for _ in range(2):
        place = {"cluster": "B", "topic": h.topic("t"), "partition": 0, "value": []}
        h.line("c1", "fail", "poll", **place, error="UNKNOWN_LEADER_EPOCH")
    if not fault:
        h.poll("B")


@STRICT.story("failback/unequal")
def old_source_was_not_cut(h: Lines, fault: bool) -> None:
    """The old source keeps its tail where the destination has its own records."""
    h.send("A", "a", at=0)
    h.send("A", "old", at=1, end="info")
    h.dump("B", (0, "a"))
    h.mirror("mirror_stop", source_offset=1, destination_offset=1)
    h.send("B", "w", "v", at=2, by="p2")
    for state in ("PREPARING", "MIRRORING"):
        h.mirror("mirror_state", cluster="A", state=state)
    rest = [(2, "w", {"lepoch": 11}), (3, "v", {"lepoch": 11})]
    h.dump("A", (0, "a"), *([(1, "old"), rest[1]] if fault else [(1, None, RESET), *rest]))
    h.dump("B", (0, "a"), (1, None, RESET), *rest)


@STRICT.story("mirror_loss")
def lag_0_was_said_after_the_acknowledgement(h: Lines, fault: bool) -> None:
    """The tail is lag, unless the mirror reported lag 0."""
    h.send("A", "a", "b", at=0)
    h.dump("B", (0, "a"))
    h.mirror("mirror_state", state="MIRRORING", lag=0 if fault else 1)
    h.dump("A", (0, "a"), (1, "b"))
    h.dump("B", (0, "a"))


@STRICT.story("stuck/mirror")
def mirror_partition_stands_still(h: Lines, fault: bool) -> None:
    """Lag that does not go down for longer than the bound."""
    for step in range(3):
        h.wait(50_000)
        h.mirror("mirror_state", state="MIRRORING", topic="t", destination_offset=5 if fault else 5 + step, lag=9)


@UNCLEAN.story("unclean_divergence")
def destination_kept_what_the_source_lost(h: Lines, fault: bool) -> None:
    """An out-of-sync replica was elected on A; B holds the lost record, or reports FAILED."""
    h.send("A", "a", at=0)
    h.send("A", "x", end="info")
    h.line("nemesis", "info", "unclean_elect", node=2, cluster="A")
    h.send("A", "y", at=1, by="p2")
    h.dump("A", (0, "a"), (1, "y", {"lepoch": 3}))
    h.mirror("mirror_state", state="MIRRORING" if fault else "FAILED", error=None if fault else "diverged at 1")
    h.dump("B", (0, "a"), (1, "x"), mirror_of="A")
