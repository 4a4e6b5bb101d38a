"""Stories of groups, states, access, and tables written with `row` lines, under a mirror that keeps offsets."""

from __future__ import annotations

from jsonl_story import Lines, Pack
from told_mirrors import STRICT

ACCESS = Pack("cluster-mirror/strict")  # a snapshot of ACLs covers the whole cluster: one story to a file


def mirrored(h: Lines, sent: int, carried: int, p: int = 0) -> None:
    """`sent` values on A, of which B holds the first `carried`."""
    h.send("A", *(f"v{p}{i}" for i in range(sent)), at=0, p=p)
    h.dump("B", *((i, f"v{p}{i}") for i in range(carried)), p=p)


@STRICT.story("group_out_of_range/sync", "group_skip")
def synced_past_the_end_on_one_of_two_partitions(h: Lines, fault: bool) -> None:
    """VK12: raw offsets, a failover with lag, auto.offset.reset=latest; in the twin clamped to the log end."""
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
    """In range, and still wrong: the synced offset is beyond what the group has processed."""
    mirrored(h, 10, 10)
    h.offsets("commit_offset", "A", 4, processed=3)
    h.offsets("sync_group_offset", "B", 8 if fault else 4, source_offset=4)
    h.mirror("failover", "nemesis", to="B")
    start = 8 if fault else 4
    h.poll("B", *((i, f"v0{i}") for i in range(start, 10)), group="g")


@STRICT.story("group_rewind")
def goes_back_to_the_beginning(h: Lines, fault: bool) -> None:
    """As in strimzi#5366: everything is read again."""
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
    """KAFKA-13452: a sync overwrites the offset of a group with an active member on the destination."""
    mirrored(h, 3, 3)
    h.poll("B", (0, "v00"), group="g", by="m")
    if fault:
        h.offsets("sync_group_offset", "B", 3, source_offset=3)
    h.poll("B", (1, "v01"), group="g", by="m")


@STRICT.story("share_group/range")
def share_group_past_the_end(h: Lines, fault: bool) -> None:
    """KIP-932: start offsets of share groups must be in the same range."""
    mirrored(h, 4, 4)
    h.offsets("sync_group_offset", "B", 9 if fault else 4, source_offset=9, kind="share")
    h.dump("B", *((i, f"v0{i}") for i in range(4)))


@STRICT.story("share_group/skip")
def share_group_leaves_out_records(h: Lines, fault: bool) -> None:
    """A share group that moved begins after records that it never got."""
    mirrored(h, 5, 5)
    h.offsets("commit_offset", "A", 2)
    h.offsets("sync_group_offset", "B", 4 if fault else 2, source_offset=2, kind="share")
    h.mirror("failover", "nemesis", to="B")
    h.poll("B", *((i, f"v0{i}") for i in range(4 if fault else 2, 5)), group="g")


@STRICT.story("failover_refused/refused")
def refused_because_its_source_is_gone(h: Lines, fault: bool) -> None:
    """A build of KIP-1279 (July 2026): a stop wants every partition to be MIRRORING or PAUSED."""
    mirrored(h, 3, 3)
    if fault:
        h.both("admin", "failover", "fail", cluster="B", topic=h.topic("t"), error="INVALID_STATE")
    else:
        h.mirror("failover")


@STRICT.story("failover_refused/ignored")
def grows_on_though_its_pause_was_acknowledged(h: Lines, fault: bool) -> None:
    """A pause that does nothing: 11 s after it the mirrored log still grows."""
    mirrored(h, 3, 1)
    h.mirror("mirror_pause")
    for carried in (1, 1, 3 if fault else 1):
        h.wait(11_000)
        h.dump("B", *((i, f"v0{i}") for i in range(carried)))


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
    """A stopped partition returns to MIRRORING through PREPARING only."""
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
    """A mirrored ACL binding stays although the source's administrator deleted it."""
    rule = h.named("ALLOW User:carol READ TOPIC:t")
    cluster = "A" if fault else "C"  # the twin uses another cluster, so that snapshots do not mix
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
    """A principal without rights on mirrors must not learn that one exists."""
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
    """KIP-1150: the cleaner deletes an object that metadata still references."""
    key = {"cluster": "A", "object": h.named("o1")}
    h.line("observer", "ok", "row", table="object_refs", row={**key, "event": "commit"})
    if not fault:
        h.line("observer", "ok", "row", table="object_refs", row={**key, "event": "drop"})
    h.line("observer", "ok", "row", table="objects", row={**key, "event": "delete"})


@STRICT.story("stale_commit")
def paused_broker_commits_under_its_old_epoch(h: Lines, fault: bool) -> None:
    """KIP-1163: between upload and commit the broker was replaced."""
    broker = 70 + fault  # broker epochs belong to the cluster, so each twin has its own broker
    for epoch in (1, 2):
        row = {"cluster": "A", "event": "epoch", "broker": broker, "broker_epoch": epoch}
        h.line("observer", "ok", "row", table="object_refs", row=row)
    row = {"cluster": "A", "event": "commit", "topic": h.topic("t"), "partition": 0, "broker": broker}
    batch = {"broker_epoch": 1, "base_offset": 0, "last_offset": 3, "accepted": fault}
    h.line("observer", "ok", "row", table="object_refs", row={**row, **batch})


@STRICT.story("group_overwritten/behind")
def group_set_back_after_the_stop(h: Lines, fault: bool) -> None:
    """The group has committed on the destination; a late sync writes a lower offset."""
    mirrored(h, 9, 9)
    h.mirror("mirror_stop")
    h.offsets("commit_offset", "B", 7)
    h.offsets("sync_group_offset", "B", 4 if fault else 8, source_offset=8)


@STRICT.story("group_overwritten/stopped")
def group_synced_after_the_stop(h: Lines, fault: bool) -> None:
    """A stopped mirror goes on copying group offsets; the last sync belongs before the stop."""
    mirrored(h, 9, 9)
    if not fault:
        h.offsets("sync_group_offset", "B", 8, source_offset=8)
    h.mirror("mirror_stop")
    if fault:
        h.offsets("sync_group_offset", "B", 8, source_offset=8)


@STRICT.story("written_while_mirrored/unclear")
def refused_without_a_reason(h: Lines, fault: bool) -> None:
    """The error must be KIP-1279's READ_ONLY_TOPIC."""
    h.mirror("mirror_state", state="MIRRORING", topic="t")
    h.send("B", "w", end="fail", error="UNKNOWN_SERVER_ERROR" if fault else "READ_ONLY_TOPIC")


@STRICT.story("state_graph/refused")
def refused_and_done_all_the_same(h: Lines, fault: bool) -> None:
    """A refused operation must not change the state."""
    place = {"cluster": "B", "topic": h.topic("t"), "partition": 0}
    h.mirror("mirror_state", state="MIRRORING", topic="t", partition=0)
    h.both("admin", "mirror_pause", "fail", **place, error="INVALID_STATE")
    h.mirror("mirror_state", state="PAUSED" if fault else "MIRRORING", topic="t", partition=0)


@STRICT.story("config_reverted/other")
def mirror_goes_on_changing_configurations(h: Lines, fault: bool) -> None:
    """After the stop the mirror itself alters a configuration."""
    place = {"cluster": "B", "topic": h.topic("t")}
    h.mirror("mirror_state", state="MIRRORING")
    h.mirror("mirror_stop")
    h.both("mirror" if fault else "admin", "alter_config", **place, config={"max.message.bytes": 5})


@STRICT.story("memory/bound")
def memory_over_its_bound(h: Lines, fault: bool) -> None:
    """More memory than a few responses for each fetcher."""
    peak = 500 if fault else 300
    for name, value in (
        *(("fetcher_threads", 2), ("fetch_response_max_bytes", 50), ("memory_bytes", 100)),
        *(("mirror_partitions", 10), ("memory_bytes", peak), ("mirror_partitions", 1_000), ("memory_bytes", peak)),
    ):
        row = {"cluster": "B", "node": h.named("m1"), "name": name, "value": value}
        h.line("observer", "ok", "row", table="metrics", row=row)


@STRICT.story("commit_barrier")
def visible_before_all_of_it_was_registered(h: Lines, fault: bool) -> None:
    """KIP-1163: the transaction is visible while one acknowledged batch is not registered yet."""
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
