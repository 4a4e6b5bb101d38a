"""Stories of groups, states, access and what JSON lines say with `row`: under a mirror that keeps offsets, and MM2."""

from __future__ import annotations

from jsonl_story import Lines, Pack
from told_mirrors import STRICT

MM2 = Pack("mm2-at-least-once")
EXACTLY = Pack("mm2-exactly-once")
ACCESS = Pack("cluster-mirror/strict")  # looks at ACLs show a cluster whole: one story to a file


def mirrored(h: Lines, sent: int, carried: int, p: int = 0) -> None:
    """`sent` values on A, of which B holds the first."""
    h.send("A", *(f"v{p}{i}" for i in range(sent)), at=0, p=p)
    h.dump("B", *((i, f"v{p}{i}") for i in range(carried)), p=p)


@STRICT.story("group_out_of_range/sync", "group_skip")
def synced_past_the_end_on_one_of_two_partitions(h: Lines, fault: bool) -> None:
    """VK12: raw offsets, a failover with lag, auto.offset.reset=latest; in the twin clamped to the end."""
    for p, carried in ((0, 10), (1, 6)):
        mirrored(h, 10, carried, p)
        h.offsets("commit_offset", "A", 10, p=p, processed=9)
        h.offsets("sync_group_offset", "B", carried if p == 0 or not fault else 10, p=p, source_offset=10)
    h.mirror("failover", "nemesis", to="B")
    h.send("B", "w0", "w1", at=6, p=1, by="p2")
    if fault:
        h.poll("B", p=1, group="g", reset="latest", position=8)
    else:
        h.poll("B", (6, "w0"), (7, "w1"), p=1, group="g", reset="latest", position=8)
    h.dump("B", *((i, f"v1{i}") for i in range(6)), (6, "w0"), (7, "w1"), p=1)


@STRICT.story("group_skip")
def resumed_behind_what_it_had_not_processed(h: Lines, fault: bool) -> None:
    """In range, and still wrong: the offset written lies beyond what the group had processed."""
    mirrored(h, 10, 10)
    h.offsets("commit_offset", "A", 4, processed=3)
    h.offsets("sync_group_offset", "B", 8 if fault else 4, source_offset=4)
    h.mirror("failover", "nemesis", to="B")
    start = 8 if fault else 4
    h.poll("B", *((i, f"v0{i}") for i in range(start, 10)), group="g")


@STRICT.story("group_rewind")
def goes_back_to_the_beginning(h: Lines, fault: bool) -> None:
    """strimzi#5366 in small: everything is read again."""
    mirrored(h, 60, 60)
    for offset in range(10, 61, 10):
        h.offsets("commit_offset", "A", offset)
    h.offsets("sync_group_offset", "B", 0 if fault else 60, source_offset=60)
    h.mirror("failover", "nemesis", to="B")
    if fault:
        h.poll("B", *((i, f"v0{i}") for i in range(60)), group="g")
    else:
        h.poll("B", group="g", position=60)


@STRICT.story("group_overwritten/active")
def group_at_work_is_overwritten(h: Lines, fault: bool) -> None:
    """KAFKA-13452: a sync under the feet of a member on the destination."""
    mirrored(h, 3, 3)
    h.poll("B", (0, "v00"), group="g", by="m")
    if fault:
        h.offsets("sync_group_offset", "B", 3, source_offset=3)
    h.poll("B", (1, "v01"), group="g", by="m")


@STRICT.story("share_group/range")
def share_group_past_the_end(h: Lines, fault: bool) -> None:
    """KIP-932: start offsets of share groups obey the same range."""
    mirrored(h, 4, 4)
    h.offsets("sync_group_offset", "B", 9 if fault else 4, source_offset=9, kind="share")
    h.dump("B", *((i, f"v0{i}") for i in range(4)))


@STRICT.story("share_group/skip")
def share_group_leaves_out_records(h: Lines, fault: bool) -> None:
    """A share group that moved begins behind what it never got."""
    mirrored(h, 5, 5)
    h.offsets("commit_offset", "A", 2)
    h.offsets("sync_group_offset", "B", 4 if fault else 2, source_offset=2, kind="share")
    h.mirror("failover", "nemesis", to="B")
    h.poll("B", *((i, f"v0{i}") for i in range(4 if fault else 2, 5)), group="g")


@STRICT.story("written_while_mirrored/accepted")
def paused_is_not_stopped(h: Lines, fault: bool) -> None:
    """KIP-1279: a paused partition is read-only; after the stop it is not."""
    h.mirror("mirror_state", state="MIRRORING", topic="t")
    h.mirror("mirror_state", state="PAUSED", topic="t")
    if not fault:
        h.mirror("mirror_stop", topic="t")
    h.send("B", "w", at=0, by="p9")
    h.dump("B", (0, "w"))


@STRICT.story("state_graph/edge")
def mirroring_again_without_preparing(h: Lines, fault: bool) -> None:
    """A stopped partition comes back through PREPARING only."""
    h.topic("t")
    for state in ("MIRRORING", "STOPPED", *([] if fault else ["PREPARING"]), "MIRRORING"):
        h.mirror("mirror_state", state=state)


@STRICT.story("config_reverted/retention")
def retention_of_the_source_comes_back(h: Lines, fault: bool) -> None:
    """After the stop the old source's shorter retention is applied again: B's own data expires."""
    place = {"cluster": "B", "topic": h.topic("t")}
    h.mirror("mirror_state", state="MIRRORING")
    h.mirror("mirror_stop")
    h.both("admin", "alter_config", **place, config={"retention.ms": "604800000"})
    h.line("observer", "ok", "config_list", **place, config={"retention.ms": 1000 if fault else 604800000})


@ACCESS.story("acl_lost/stale")
def removed_on_the_source_and_still_there(h: Lines, fault: bool) -> None:
    """A binding that the mirror brought stays although the source's administrator removed it."""
    rule = h.named("ALLOW User:carol READ TOPIC:t")
    cluster = "A" if fault else "C"  # in the twin another cluster, whose looks nobody mixes up with these
    h.both("admin", "acl_create", cluster=cluster, acl=rule)
    h.line("observer", "ok", "acl_list", cluster=cluster, value=[rule])
    if fault:
        h.line("observer", "ok", "acl_list", cluster="B", value=[rule])
    h.both("admin", "acl_delete", cluster=cluster, acl=rule)
    h.line("observer", "ok", "acl_list", cluster=cluster, value=[])
    if fault:
        h.line("observer", "ok", "acl_list", cluster="B", value=[rule])


@STRICT.story("name_leak")
def error_message_names_a_mirror(h: Lines, fault: bool) -> None:
    """Whoever has no rights on mirrors must not learn that one exists."""
    row = {"cluster": "B", "principal": "User:alice", "surface": "error_text", "entitled": not fault}
    h.line("observer", "ok", "row", table="mirror_names", row={**row, "mirror": h.named("m")})


@STRICT.story("memory/growth")
def memory_grows_with_partitions(h: Lines, fault: bool) -> None:
    """A mass wake-up of idle partitions must not hold one response for each."""
    for name, value in (
        *(("fetcher_threads", 2), ("fetch_response_max_bytes", 50), ("memory_bytes", 100)),
        *(("mirror_partitions", 10), ("memory_bytes", 160 if fault else 300)),
        *(("mirror_partitions", 1_000), ("memory_bytes", 350 if fault else 310)),
    ):
        row = {"cluster": "B", "node": h.named("m1"), "name": name, "value": value}
        h.line("observer", "ok", "row", table="metrics", row=row)


@STRICT.story("referenced_deleted/deleted")
def object_deleted_under_its_metadata(h: Lines, fault: bool) -> None:
    """KIP-1150: the cleaner removes what metadata still names."""
    key = {"cluster": "A", "object": h.named("o1")}
    h.line("observer", "ok", "row", table="object_refs", row={**key, "event": "commit"})
    if not fault:
        h.line("observer", "ok", "row", table="object_refs", row={**key, "event": "drop"})
    h.line("observer", "ok", "row", table="objects", row={**key, "event": "delete"})


@STRICT.story("stale_commit")
def paused_broker_commits_under_its_old_epoch(h: Lines, fault: bool) -> None:
    """KIP-1163: between upload and commit the broker was replaced."""
    broker = 70 + fault  # brokers' epochs are the cluster's, so each twin has its own broker
    for epoch in (1, 2):
        row = {"cluster": "A", "event": "epoch", "broker": broker, "broker_epoch": epoch}
        h.line("observer", "ok", "row", table="object_refs", row=row)
    row = {"cluster": "A", "event": "commit", "topic": h.topic("t"), "partition": 0, "broker": broker}
    batch = {"broker_epoch": 1, "base_offset": 0, "last_offset": 3, "accepted": fault}
    h.line("observer", "ok", "row", table="object_refs", row={**row, **batch})


@STRICT.story("group_overwritten/behind")
def group_set_back_after_the_stop(h: Lines, fault: bool) -> None:
    """The group had committed on the destination; a late sync writes less."""
    mirrored(h, 9, 9)
    h.mirror("mirror_stop")
    h.offsets("commit_offset", "B", 7)
    h.offsets("sync_group_offset", "B", 4 if fault else 8, source_offset=8)


@STRICT.story("written_while_mirrored/unclear")
def refused_without_a_reason(h: Lines, fault: bool) -> None:
    """KIP-1279 has READ_ONLY_TOPIC for that."""
    h.mirror("mirror_state", state="MIRRORING", topic="t")
    h.send("B", "w", end="fail", error="UNKNOWN_SERVER_ERROR" if fault else "READ_ONLY_TOPIC")


@STRICT.story("state_graph/refused")
def refused_and_done_all_the_same(h: Lines, fault: bool) -> None:
    """An operation in the wrong state changes nothing."""
    place = {"cluster": "B", "topic": h.topic("t"), "partition": 0}
    h.mirror("mirror_state", state="MIRRORING", topic="t", partition=0)
    h.both("admin", "mirror_pause", "fail", **place, error="INVALID_STATE")
    h.mirror("mirror_state", state="PAUSED" if fault else "MIRRORING", topic="t", partition=0)


@STRICT.story("config_reverted/other")
def mirror_goes_on_changing_configurations(h: Lines, fault: bool) -> None:
    """After the stop the mirror itself alters an entry."""
    place = {"cluster": "B", "topic": h.topic("t")}
    h.mirror("mirror_state", state="MIRRORING")
    h.mirror("mirror_stop")
    h.both("mirror" if fault else "admin", "alter_config", **place, config={"max.message.bytes": 5})


@STRICT.story("memory/bound")
def memory_over_its_bound(h: Lines, fault: bool) -> None:
    """More than a few responses for each fetcher."""
    peak = 500 if fault else 300
    for name, value in (
        *(("fetcher_threads", 2), ("fetch_response_max_bytes", 50), ("memory_bytes", 100)),
        *(("mirror_partitions", 10), ("memory_bytes", peak), ("mirror_partitions", 1_000), ("memory_bytes", peak)),
    ):
        row = {"cluster": "B", "node": h.named("m1"), "name": name, "value": value}
        h.line("observer", "ok", "row", table="metrics", row=row)


@STRICT.story("commit_barrier")
def visible_before_all_of_it_was_registered(h: Lines, fault: bool) -> None:
    """KIP-1163: the transaction is visible, one acknowledged batch is not registered yet."""
    h.send("A", "x", at=3, txn="T")
    batch = {"cluster": "A", "event": "commit", "topic": h.topic("t"), "partition": 0, "broker": 9}
    batch |= {"base_offset": 0, "last_offset": 3, "object": h.named("o")}
    visible = {"cluster": "A", "event": "txn", "txn": h.named("T")}
    for row in (visible, batch) if fault else (batch, visible):
        h.line("observer", "ok", "row", table="object_refs", row=row)
    h.poll("A", (3, "x"))


@STRICT.story("stuck/group")
def group_makes_no_progress(h: Lines, fault: bool) -> None:
    """Bufstream 0.1.0's stuck consumers: members, records to read, and an offset that does not move."""
    h.send("A", "a", "b", at=0)
    h.dump("A", (0, "a"), (1, "b"))
    row = {"cluster": "A", "group": h.named("g"), "topic": h.topic("t"), "partition": 0, "kind": "consumer"}
    for offset in (0, 0 if fault else 2, 0 if fault else 2):
        h.wait(50_000)
        look = {**row, "event": "look", "members": 1, "offset": offset}
        h.line("observer", "ok", "row", table="group_offsets", row=look)


# -- MirrorMaker 2 ----------------------------------------------------------------------------------------------------


@MM2.story("group_out_of_range/sync")
def source_offset_written_untranslated(h: Lines, fault: bool) -> None:
    """KAFKA-12468, apache/kafka#13178: on one of two partitions the offset of A itself."""
    for p in (0, 1):
        h.send("A", *(f"v{p}{i}" for i in range(3)), at=500, p=p)
        h.dump("B", *((i, f"v{p}{i}") for i in range(3)), p=p)
        h.offsets("commit_offset", "A", 503, p=p)
        h.offsets("sync_group_offset", "B", 503 if fault and p else 3, p=p, source_offset=503, by="mm2")
        h.dump("B", *((i, f"v{p}{i}") for i in range(3)), p=p)


@MM2.story("group_skip")
def group_that_was_never_synced(h: Lines, fault: bool) -> None:
    """KAFKA-10048: a group at offset 0 is left out; with auto.offset.reset=latest it begins at the end."""
    h.send("A", "v0", "v1", "v2", at=0)
    h.dump("B", (0, "v0"), (1, "v1"), (2, "v2"))
    h.offsets("commit_offset", "A", 0)
    h.mirror("failover", "nemesis", to="B")
    if fault:
        h.poll("B", group="g", reset="latest", position=3)
    else:
        h.poll("B", (0, "v0"), (1, "v1"), (2, "v2"), group="g", reset="earliest")


@MM2.story("retention_gap")
def expired_while_mm2_was_down(h: Lines, fault: bool) -> None:
    """apache/kafka#22248: the connector's auto.offset.reset=earliest hides it; in the twin it is said."""
    h.send("A", *(f"r{i}" for i in range(9)), at=1000, p=2)
    h.line("nemesis", "info", "kill_mm2", topic=h.topic("t"))
    h.line("nemesis", "info", "retention", cluster="A", topic=h.topic("t"), partition=2, log_start=1006)
    h.line("nemesis", "info", "start_mm2", topic=h.topic("t"))
    if not fault:
        h.mirror("mirror_state", "mm2", state="FAILED", error="offset 1003 is out of range")
    h.dump("A", *((1000 + i, f"r{i}") for i in range(6, 9)), p=2, log_start=1006)
    h.dump("B", *((i, f"r{v}") for i, v in enumerate((0, 1, 2, 6, 7, 8))), p=2)


@MM2.story("checkpoint_rewind/ahead")
def checkpoint_past_the_truth(h: Lines, fault: bool) -> None:
    """KAFKA-12468: a translated offset may be early, never late."""
    h.send("A", *(f"v{i}" for i in range(6)), at=10)
    h.dump("B", *((i, f"v{i}") for i in range(6)))
    h.offsets("checkpoint", "B", 5 if fault else 2, source_offset=13, by="mm2")


@MM2.story("checkpoint_rewind/back")
def checkpoint_goes_back(h: Lines, fault: bool) -> None:
    """KAFKA-14666: translations go back while the source goes forward."""
    h.send("A", *(f"v{i}" for i in range(6)), at=0)
    h.dump("B", *((i, f"v{i}") for i in range(6)))
    for source, there in ((3, 3), (4, 1 if fault else 4)):
        h.offsets("checkpoint", "B", there, source_offset=source, by="mm2")


@MM2.story("mirror_loss")
def topic_made_again_is_not_copied_from_its_start(h: Lines, fault: bool) -> None:
    """A connector that keeps its old position skips the beginning of the new topic."""
    h.send("A", *(f"n{i}" for i in range(5)), at=0)
    h.dump("A", *((i, f"n{i}") for i in range(5)))
    kept = [2, 4] if fault else range(5)
    h.dump("B", *((i, f"n{v}") for i, v in enumerate(kept)))


@EXACTLY.story("mirror_duplicate", "duplicate")
def restart_copies_everything_again(h: Lines, fault: bool) -> None:
    """strimzi#5366: after a restart the connector begins at the start."""
    h.send("A", "v0", "v1", at=0)
    h.dump("A", (0, "v0"), (1, "v1"))
    again = [(2, "v0"), (3, "v1")] if fault else []
    h.dump("B", (0, "v0"), (1, "v1"), *again)


@EXACTLY.story("mirror_reorder")
def tasks_overtake_each_other(h: Lines, fault: bool) -> None:
    """Two tasks own one partition for a moment."""
    order = ("v0", "v2", "v1") if fault else ("v0", "v1", "v2")
    h.send("A", "v0", "v1", "v2", at=0)
    h.dump("A", *((i, f"v{i}") for i in range(3)))
    h.dump("B", *enumerate(order))


@EXACTLY.story("aborted_set")
def aborted_records_become_plain_ones(h: Lines, fault: bool) -> None:
    """A read_uncommitted source consumer under a contract that promises only committed data."""
    h.txn("A", "begin", "T1")
    h.send("A", "x", at=0, txn="T1", pid=7, epoch=0)
    h.txn("A", "abort", "T1")
    h.send("A", "y", at=2, by="p2")
    of = {"txn": "T1", "pid": 7, "pepoch": 0, "lepoch": 0}
    h.dump("A", (0, "x", of), (1, None, {**of, "ctl": "ABORT"}), (2, "y"))
    h.dump("B", *([(0, "x"), (1, "y")] if fault else [(0, "y")]))
