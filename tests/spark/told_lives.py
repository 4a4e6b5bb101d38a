"""Stories of topics that are deleted and recreated while clients use them. A life is one incarnation of a topic."""

from __future__ import annotations

from typing import Any

from jsonl_story import Lines, Pack

LIVES = Pack("kafka-clean")
MIRRORED = Pack("mm2-at-least-once")


def admin(h: Lines, f: str, *types: str, **fields: Any) -> None:
    """Events of a deletion (`delete`) or creation (`create`) of topic t."""
    for type_ in types:
        h.line("admin", type_, f"{f}_topic", cluster="A", topic=h.topic("t"), **fields)


def deleted(h: Lines, end: str = "ok") -> None:
    admin(h, "delete", "invoke", end)


def created(h: Lines) -> None:
    admin(h, "create", "invoke", "ok")


def made_again(h: Lines) -> None:
    deleted(h)
    created(h)


def begin(h: Lines, value: str, by: str = "p9", **fields: Any) -> dict[str, Any]:
    """Invoke a send; its fields, for `end`."""
    place = {"cluster": "A", "topic": h.topic("t"), "partition": 0, "value": h.named(value), **fields}
    h.line(by, "invoke", "send", **place)
    return {"by": by, **place}


def end(h: Lines, sent: dict[str, Any], offset: int) -> None:
    """Acknowledge it."""
    place = {name: value for name, value in sent.items() if name != "by"}
    h.line(sent["by"], "ok", "send", offset=offset, **place)


def poll(h: Lines, *read: tuple[int, str], by: str = "c1", event: str = "both", **fields: Any) -> None:
    """A poll with its invocation; event: `invoke` or `ok` alone, where something comes between them."""
    place = {"cluster": "A", "topic": h.topic("t"), "partition": 0, "isolation": "read_uncommitted", **fields}
    if event != "ok":
        h.line(by, "invoke", "poll", **place)
    if event != "invoke":
        h.line(by, "ok", "poll", value=[[o, h.named(v)] for o, v in read], **place)


# -- deletions of unknown outcome -------------------------------------------------------------------------------------


@LIVES.story("lost_write/gone")
def undecided_and_made_again(h: Lines, fault: bool) -> None:
    """The deletion timed out; the topic could be created again, so it was deleted."""
    h.send("A", "v0", "v1", at=0)
    deleted(h, "info")
    created(h)
    h.send("A", "n0", "n1", at=0)
    h.dump("A", (0, "n0"), *([] if fault else [(1, "n1")]), leo=2)


@LIVES.story("lost_write/gone")
def undecided_and_never_done(h: Lines, fault: bool) -> None:
    """The deletion timed out and had no effect: offsets continue, and earlier acknowledgements stay valid."""
    h.send("A", "v0", "v1", at=0)
    deleted(h, "info")
    h.send("A", "v2", at=2)
    h.dump("A", (0, "v0"), *([] if fault else [(1, "v1")]), (2, "v2"))


@LIVES.story("lost_write/gone")
def undecided_and_offsets_begin_anew(h: Lines, fault: bool) -> None:
    """No creation is recorded (brokers may create topics themselves); offsets show that the topic is new."""
    h.send("A", "v0", "v1", "v2", at=0)
    deleted(h, "info")
    h.send("A", "n0", "n1", at=0, by="p2")
    h.dump("A", *([] if fault else [(0, "n0")]), (1, "n1"), leo=2)


@LIVES.story("lost_write/gone")
def undecided_and_another_topic_id(h: Lines, fault: bool) -> None:
    """The topic id of the log shows that the topic is new, though the new log is longer than the old one."""
    h.send("A", "v0", at=0)
    h.dump("A", (0, "v0"), topic_id="one")
    deleted(h, "info")
    h.dump("A", (0, "x", {"ctl": "COMMIT", "pid": 9}), topic_id="one" if fault else "two")


@LIVES.story("unseen")
def undecided_and_not_there_any_more(h: Lines, fault: bool) -> None:
    """A second deletion fails with UNKNOWN_TOPIC_OR_PARTITION; without it the fate of the record is unknown."""
    h.send("A", "v0", at=0)
    deleted(h, "info")
    if not fault:
        admin(h, "delete", "invoke")
        admin(h, "delete", "fail", error="UNKNOWN_TOPIC_OR_PARTITION")
    h.dump("A", topic="other")


@LIVES.story("unseen")
def told_afterwards(h: Lines, fault: bool) -> None:
    """An info without an invocation states what was done; an info that ends an invocation is an unknown outcome."""
    h.send("A", "v0", at=0)
    admin(h, "delete", *(["invoke"] if fault else []), "info")
    h.dump("A", topic="other")


@LIVES.story("lost_write/gone")
def refused(h: Lines, fault: bool) -> None:
    """A deletion that failed deletes nothing."""
    h.send("A", "v0", "v1", at=0)
    deleted(h, "fail")
    h.dump("A", (0, "v0"), *([] if fault else [(1, "v1")]), leo=2)


@LIVES.story("lost_write/gone")
def acknowledged_and_created_by_a_broker(h: Lines, fault: bool) -> None:
    """No creation is recorded: offset 0, acknowledged a second time, belongs to the new topic."""
    h.send("A", "v0", "v1", at=0)
    deleted(h)
    h.send("A", "n0", at=0, by="p2")
    h.dump("A", *([] if fault else [(0, "n0")]), leo=1)


@LIVES.story("lost_write/gone")
def tried_twice(h: Lines, fault: bool) -> None:
    """The first deletion times out without effect, clients continue, the second one succeeds."""
    h.send("A", "v0", at=0)
    deleted(h, "info")
    h.send("A", "v1", at=1)
    poll(h, (0, "v0"), (1, "v1"))
    made_again(h)
    h.send("A", "n0", "n1", at=0)
    h.dump("A", (0, "n0"), *([] if fault else [(1, "n1")]), leo=2)


# -- sends that overlap a deletion ------------------------------------------------------------------------------------


@LIVES.story("lost_write/gone")
def acknowledged_after_the_creation(h: Lines, fault: bool) -> None:
    """A late acknowledgement of the old topic. With the fault it was sent when the new topic existed."""
    h.send("A", "v0", at=0)
    sent = {} if fault else begin(h, "v1")
    made_again(h)
    h.send("A", "n0", at=0, by="p2")
    end(h, sent or begin(h, "v1"), 1)
    h.dump("A", (0, "n0"), leo=2 if fault else 1)


@LIVES.story("lost_write/gone")
def acknowledged_before_the_creation(h: Lines, fault: bool) -> None:
    """Sent and acknowledged between deletion and creation, by a broker that had not heard of the deletion."""
    h.send("A", "v0", at=0)
    admin(h, "delete", "invoke")
    h.send("A", "v1", at=1)
    admin(h, "delete", "ok")
    h.send("A", "v2", at=2)
    created(h)
    h.send("A", "n0", at=0)
    h.send("A", "n1", at=1)
    h.dump("A", (0, "n0"), *([] if fault else [(1, "n1")]), leo=2)


@LIVES.story("lost_write/gone")
def went_into_the_new_one(h: Lines, fault: bool) -> None:
    """Sent before the deletion and read in the new topic: it must stay there."""
    h.send("A", "v0", at=0)
    sent = begin(h, "n0")
    made_again(h)
    end(h, sent, 0)
    poll(h, (0, "n0"))
    h.dump("A", *([] if fault else [(0, "n0")]), leo=1)


@LIVES.story("lost_write/gone")
def offset_tells_the_life(h: Lines, fault: bool) -> None:
    """Sent after the deletion, and acknowledged with an offset that the old log had already used."""
    h.send("A", "v0", "v1", at=0)
    deleted(h)
    admin(h, "create", "invoke")
    h.send("A", "n0", at=0, by="p2")
    admin(h, "create", "ok")
    h.dump("A", *([] if fault else [(0, "n0")]), leo=1)


@LIVES.story("lost_write/gone")
def over_two_deletions(h: Lines, fault: bool) -> None:
    """Three lives; an operation that overlaps all of them may belong to any."""
    h.send("A", "v0", "v1", at=0)
    sent = begin(h, "x")
    poll(h, by="c2", event="invoke")
    made_again(h)
    h.send("A", "m0", at=0)
    made_again(h)
    end(h, sent, 2)
    poll(h, (0, "m0"), by="c2", event="ok")
    h.send("A", "n0", "n1", at=0)
    poll(h, (0, "n0"), (1, "n1"), by="c3")
    h.dump("A", (0, "n0"), *([] if fault else [(1, "n1")]), leo=2)


@LIVES.story("nonmonotonic_send", "reordered")
def order_of_sends(h: Lines, fault: bool) -> None:
    """Offsets of one process may go back from one life to the next, not within one."""
    h.send("A", "v0", "v1", at=0)
    sent = begin(h, "v2", by="p1")
    made_again(h)
    end(h, sent, 2)
    h.send("A", "n0", at=1 if fault else 0)
    h.send("A", "n1", at=0 if fault else 1)
    h.dump("A", (0, "n1" if fault else "n0"), (1, "n0" if fault else "n1"))


@LIVES.story("ack_mismatch/elsewhere")
def told_one_offset_and_held_at_another(h: Lines, fault: bool) -> None:
    """A client that retries writes to both topics and is acknowledged for one."""
    h.send("A", "v0", at=0)
    sent = {} if fault else begin(h, "x")
    if not fault:
        poll(h, (0, "v0"), (1, "x"), by="c2")
    made_again(h)
    end(h, sent or begin(h, "x"), 1)
    h.dump("A", (0, "x"))


@LIVES.story("duplicate")
def copies_in_two_lives(h: Lines, fault: bool) -> None:
    """The same, with readers of both."""
    h.send("A", "v0", at=0)
    sent = begin(h, "x")
    poll(h, by="c2", event="invoke")
    made_again(h)
    end(h, sent, 0)
    poll(h, (0, "v0"), (1, "x"), by="c2", event="ok")
    h.dump("A", (0, "x"), *([(1, "x")] if fault else []))


@LIVES.story("torn_transaction")
def transaction_over_a_deletion(h: Lines, fault: bool) -> None:
    """Its first record was deleted with the old topic. With the fault both were sent to the new one."""
    txn = {"txn": "T1", "by": "q"}
    h.txn("A", "begin", "T1", by="q")
    if not fault:
        h.send("A", "x", at=0, **txn)
    made_again(h)
    if fault:
        h.send("A", "x", at=0, **txn)
    h.send("A", "y", at=1 if fault else 0, **txn)
    h.txn("A", "commit", "T1", by="q")
    h.send("A", "z", at=2 if fault else 1)
    poll(h, *([(1, "y"), (2, "z")] if fault else [(0, "y"), (1, "z")]), isolation="read_committed", by="c2")
    poll(h, *([(0, "x")] if fault else []), by="c3")


# -- reads that overlap a deletion ------------------------------------------------------------------------------------


@LIVES.story("inconsistent_offsets")
def old_records_read_late(h: Lines, fault: bool) -> None:
    """A poll that began before the deletion may return old records; one that began after the creation may not."""
    h.send("A", "v0", "v1", at=0)
    if not fault:
        poll(h, event="invoke")
    made_again(h)
    h.send("A", "n0", at=0, by="p2")
    if fault:
        poll(h, event="invoke")
    poll(h, (0, "v0"), (1, "v1"), event="ok")
    poll(h, (0, "n0"), by="c2")


@LIVES.story("inconsistent_offsets")
def two_polls_under_way(h: Lines, fault: bool) -> None:
    """Both overlap the deletion: one returns the old record, one the new one. With the fault neither overlaps it."""
    h.send("A", "v0", at=0)
    if fault:
        made_again(h)
    for by in ("c1", "c2"):
        poll(h, by=by, event="invoke")
    if not fault:
        made_again(h)
    h.send("A", "n0", at=0, by="p2")
    poll(h, (0, "v0"), by="c1", event="ok")
    poll(h, (0, "n0"), by="c2", event="ok")


@LIVES.story("poll_skip/external")
def reader_over_a_deletion(h: Lines, fault: bool) -> None:
    """A reader goes back to the beginning of the new topic, and must not skip anything there."""
    h.send("A", "v0", "v1", "v2", at=0)
    poll(h, (0, "v0"))
    poll(h, event="invoke")
    made_again(h)
    poll(h, (1, "v1"), (2, "v2"), event="ok")
    h.send("A", "n0", "n1", "n2", at=0)
    poll(h, (0, "n0"))
    poll(h, *([] if fault else [(1, "n1")]), (2, "n2"))
    h.dump("A", (0, "n0"), (1, "n1"), (2, "n2"))


@LIVES.story("poll_skip/external")
def reader_while_a_deletion_is_under_way(h: Lines, fault: bool) -> None:
    """A deletion of unknown outcome does not excuse a reader that skips a record."""
    h.send("A", "v0", "v1", "v2", at=0)
    poll(h, (0, "v0"))
    if not fault:
        poll(h, (1, "v1"), by="c1")
    deleted(h, "info")
    poll(h, (2, "v2"))
    h.dump("A", (0, "v0"), (1, "v1"), (2, "v2"))


@LIVES.story("nonmonotonic_poll/external")
def reader_goes_back(h: Lines, fault: bool) -> None:
    """Positions may go back from one life to the next, not within one."""
    h.send("A", "v0", "v1", at=0)
    if not fault:
        poll(h, (0, "v0"), (1, "v1"))
    made_again(h)
    h.send("A", "n0", "n1", at=0, by="p2")
    if fault:
        poll(h, (0, "n0"), (1, "n1"))
    poll(h, (0, "n0"), (1, "n1"))


@LIVES.story("phantom/unsent")
def read_while_it_was_made_again(h: Lines, fault: bool) -> None:
    """A value that was never sent is a phantom in every life."""
    h.send("A", "v0", at=0)
    poll(h, event="invoke")
    made_again(h)
    poll(h, (0, "ghost" if fault else "v0"), event="ok")


@LIVES.story("commit_lost")
def commits(h: Lines, fault: bool) -> None:
    """Kafka deletes a group's offsets of a deleted topic; those of the new one must stay."""
    group = {"cluster": "A", "group": h.named("g"), "topic": h.topic("t"), "partition": 0}
    h.both("c1", "commit_offset", offset=5, **group)
    h.line("c1", "invoke", "commit_offset", offset=7, **group)
    made_again(h)
    h.line("c1", "ok", "commit_offset", offset=7, **group)
    if fault:
        h.both("c1", "commit_offset", offset=3, **group)
    h.both("c2", "fetch_offset", done={"offset": -1}, **group)


# -- snapshots of logs ------------------------------------------------------------------------------------------------


@LIVES.story("end_offset_regressed/log_end", "end_offset_regressed/high_watermark", "end_offset_regressed/last_stable")
def ends_of_logs(h: Lines, fault: bool) -> None:
    """Snapshots during the deletion may show either log."""
    h.dump("A", leo=9, log_start=9, leader_epoch=4)
    admin(h, "delete", "invoke")
    h.dump("A", leo=3, log_start=3, leader_epoch=4)
    admin(h, "delete", "ok")
    h.dump("A", leo=9, log_start=9, leader_epoch=4)
    created(h)
    h.dump("A", leo=6, log_start=6, leader_epoch=4)
    if fault:
        h.dump("A", leo=5, log_start=5, leader_epoch=4)


@LIVES.story("replica_divergence")
def old_log_on_a_broker_that_was_down(h: Lines, fault: bool) -> None:
    """Its topic id is the old topic's. With the fault it is the new one's, and the log differs."""
    h.send("A", "v0", "v1", at=0)
    for replica in (1, 2):
        h.dump("A", (0, "v0"), (1, "v1"), replica=replica, leader=1, topic_id="one")
    made_again(h)
    h.send("A", "n0", "n1", at=0)
    h.dump("A", (0, "n0"), (1, "n1"), replica=1, leader=1, topic_id="two")
    if fault:
        h.dump("A", (0, "n0"), (1, "v1"), replica=2, leader=1, topic_id="two")
    else:
        h.dump("A", (0, "v0"), (1, "v1"), replica=2, leader=1, topic_id="one")


@LIVES.story("replica_divergence")
def logs_looked_at_in_different_lives(h: Lines, fault: bool) -> None:
    """Snapshots of two replicas, before the deletion and after the creation, are not compared."""
    h.send("A", "v0", "v1", at=0)
    if not fault:
        h.dump("A", (0, "v0"), (1, "v1"), replica=1)
    made_again(h)
    h.send("A", "n0", "n1", at=0)
    if fault:
        h.dump("A", (0, "n0"), (1, "x", {"ctl": "COMMIT", "pid": 9}), replica=1)
    h.dump("A", (0, "n0"), (1, "n1"), replica=2, leader=2)


# -- mirrored topics --------------------------------------------------------------------------------------------------


@MIRRORED.story("mirror_loss")
def source_made_again(h: Lines, fault: bool) -> None:
    """Records that were not mirrored yet were deleted with the old topic; those of the new one must be mirrored."""
    h.send("A", "v0", "v1", at=0)
    h.dump("B", (0, "v0"))
    made_again(h)
    h.send("A", "n0", "n1", at=0)
    h.dump("A", (0, "n0"), (1, "n1"))
    h.dump("B", (0, "v0"), *([] if fault else [(1, "n0")]), (1 if fault else 2, "n1"))


@MIRRORED.story("mirror_loss")
def source_made_again_and_not_looked_at(h: Lines, fault: bool) -> None:
    """Without a snapshot of the source's log, the acknowledgements of the current topic replace it."""
    h.send("A", "v0", "v1", at=0)
    made_again(h)
    h.send("A", "n0", "n1", at=0)
    h.dump("B", *([] if fault else [(0, "n0")]), (0 if fault else 1, "n1"))


@MIRRORED.story("retention_gap")
def log_starts_of_two_lives(h: Lines, fault: bool) -> None:
    """The old topic's log start does not apply to the new one."""
    h.send("A", *(f"v{i}" for i in range(6)), at=10)
    h.dump("B", *((i, f"v{i}") for i in range(6)))
    h.dump("A", (15, "v5"), log_start=15)
    made_again(h)
    h.send("A", "n0", "n1", "n2", at=0)
    h.dump("A", *([] if fault else [(0, "n0"), (1, "n1")]), (2, "n2"), log_start=2 if fault else 0)
    there = [f"v{i}" for i in range(6)] + (["n2"] if fault else ["n0", "n1", "n2"])
    h.dump("B", *enumerate(there))
