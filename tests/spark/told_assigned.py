"""Stories of assignments that define where reading begins: offsets, log starts, committed offsets of groups."""

from __future__ import annotations

from typing import Any

from jsonl_story import Lines, Pack

ASSIGNED = Pack("kafka-clean")
SENT = 7
SKIP = "poll_skip/assigned"


def log(h: Lines, count: int = SENT, *, p: int = 0) -> None:
    """Records v0, v1, … at offsets from 0, all read by `audit`."""
    h.send("A", *(f"{p}v{n}" for n in range(count)), at=0, p=p)
    read(h, 0, count - 1, by="audit", p=p)


def read(h: Lines, first: int, last: int, *, by: str = "c1", p: int = 0, **fields: Any) -> None:
    """A poll that returns the records from one offset to another."""
    h.poll("A", *((n, f"{p}v{n}") for n in range(first, last + 1)), by=by, p=p, **fields)


def assign(h: Lines, offset: int | None = None, *, by: str = "c1", p: int | None = 0, **fields: Any) -> None:
    """An assignment of partition p of the topic."""
    if "group" in fields:
        fields["group"] = h.named(fields["group"])
    f = fields.pop("f", "assign")
    place = {} if p is None else {"topic": h.topic("t"), "partition": p}
    h.both(by, f, cluster="A", offset=offset, **place, **fields)


def expire(h: Lines, start: int) -> None:
    """Retention raises the log start."""
    h.line("admin", "ok", "retention", cluster="A", topic=h.topic("t"), partition=0, log_start=start)


def committed(h: Lines, offset: int, end: str = "ok", *, by: str = "c1") -> None:
    """An offset commit of group g: invocation and completion."""
    place = {"cluster": "A", "group": h.named("g"), "topic": h.topic("t"), "partition": 0}
    h.both(by, "commit_offset", end, offset=offset, **place)


def fetched(h: Lines, offset: int | None, *, by: str = "c2", **fields: Any) -> None:
    """An offset fetch of group g and its result."""
    place = {"cluster": "A", "group": h.named("g"), "topic": h.topic("t"), "partition": 0}
    h.both(by, "fetch_offset", done={"offset": offset}, **place, **fields)


# -- consumers without a group ----------------------------------------------------------------------------------------


@ASSIGNED.story(SKIP)
def sought_to_an_offset(h: Lines, fault: bool) -> None:
    """A consumer seeks forward; it need not read what it skips, but everything from there on."""
    log(h)
    assign(h, 0)
    read(h, 0, 1)
    assign(h, 4)
    read(h, 5 if fault else 4, 6)


@ASSIGNED.story(SKIP)
def sought_back(h: Lines, fault: bool) -> None:
    """A consumer has read everything and seeks back; it must read again from that offset on."""
    log(h)
    assign(h, 0)
    read(h, 0, 6)
    assign(h, 2)
    read(h, 4 if fault else 2, 6)


@ASSIGNED.story(SKIP)
def from_the_log_start_by_its_reset(h: Lines, fault: bool) -> None:
    """No offset and no group: `auto.offset.reset` decides; with latest the consumer may begin anywhere."""
    log(h)
    assign(h, reset="earliest" if fault else "latest")
    read(h, 3, 6)


@ASSIGNED.story(SKIP)
def only_polls_say_how_it_is_reset(h: Lines, fault: bool) -> None:
    """The assignment has neither offset nor reset; the poll has the reset."""
    log(h)
    assign(h)
    read(h, 3, 6, reset="earliest" if fault else "latest")


@ASSIGNED.story(SKIP)
def logical_offset_of_the_beginning(h: Lines, fault: bool) -> None:
    """OFFSET_BEGINNING is -2 in librdkafka, OFFSET_END -1."""
    log(h)
    assign(h, -2 if fault else -1)
    read(h, 3, 6)


@ASSIGNED.story("poll_skip/external")
def another_partition_is_assigned(h: Lines, fault: bool) -> None:
    """An assignment changes the position in the partition that it names, and in no other."""
    log(h)
    log(h, p=1)
    assign(h, 0)
    read(h, 0, 1)
    assign(h, 0, p=1)
    read(h, 3 if fault else 2, 6)
    read(h, 0, 6, p=1)


@ASSIGNED.story("poll_skip/external")
def an_assignment_that_failed(h: Lines, fault: bool) -> None:
    """A failed assignment does not change the position; one of unknown outcome may have."""
    log(h)
    assign(h, 0)
    read(h, 0, 1)
    h.both("c1", "assign", "fail" if fault else "info", cluster="A", topic=h.topic("t"), partition=0, offset=4)
    read(h, 4, 6)


@ASSIGNED.story(SKIP)
def two_partitions_are_assigned_one_after_the_other(h: Lines, fault: bool) -> None:
    """Two assignments, one line each, before the first poll."""
    log(h)
    log(h, p=1)
    assign(h, 1)
    assign(h, 2, p=1)
    read(h, 1, 6)
    read(h, 3 if fault else 2, 6, p=1)


@ASSIGNED.story(SKIP)
def the_first_polls_bring_nothing(h: Lines, fault: bool) -> None:
    """An empty poll and a failed one do not change the position."""
    log(h)
    assign(h, 1)
    h.poll("A", position=1)
    h.line("c1", "fail", "poll", cluster="A", topic=h.topic("t"), partition=0, error="_TRANSPORT")
    read(h, 2 if fault else 1, 6)


@ASSIGNED.story(SKIP)
def poll_under_way(h: Lines, fault: bool) -> None:
    """A poll that was invoked before the assignment may return records from the old position."""
    log(h)
    place = {"cluster": "A", "topic": h.topic("t"), "partition": 0, "isolation": "read_uncommitted"}
    if fault:
        assign(h, 1)
    h.line("c1", "invoke", "poll", **place)
    if not fault:
        assign(h, 1)
    h.line("c1", "ok", "poll", value=[[n, h.named(f"0v{n}")] for n in range(4, 7)], **place)


@ASSIGNED.story("poll_skip/external")
def answered_after_the_assignment(h: Lines, fault: bool) -> None:
    """A poll that overlaps the assignment completes after it: the position of the next poll is unknown."""
    log(h)
    place = {"cluster": "A", "topic": h.topic("t"), "partition": 0, "isolation": "read_uncommitted"}
    if fault:
        assign(h, 4)
    h.line("c1", "invoke", "poll", **place)
    if not fault:
        assign(h, 4)
    h.line("c1", "ok", "poll", value=[[0, h.named("0v0")], [1, h.named("0v1")]], **place)
    read(h, 4, 6)


@ASSIGNED.story("poll_skip/external")
def a_poll_of_unknown_outcome(h: Lines, fault: bool) -> None:
    """A poll of unknown outcome may have returned records; a failed one returned none."""
    log(h)
    assign(h, 0)
    read(h, 0, 1)
    h.line("c1", "fail" if fault else "info", "poll", cluster="A", topic=h.topic("t"), partition=0, error="_TIMED_OUT")
    read(h, 4, 6)


@ASSIGNED.story(SKIP)
def assigned_before_a_transaction(h: Lines, fault: bool) -> None:
    """A read_committed reader skips aborted records, also in its first read."""
    end = "commit" if fault else "abort"
    h.txn("A", "begin", "T1")
    h.send("A", "x", "y", at=0, txn="T1")
    h.txn("A", end, "T1")
    h.send("A", "z", at=3, by="p2")
    of = {"txn": "T1", "pid": 7, "pepoch": 0}
    h.dump("A", (0, "x", {**of, "seq": 0}), (1, "y", {**of, "seq": 1}), (2, None, {**of, "ctl": end.upper()}), (3, "z"))
    assign(h, 0)
    h.poll("A", (3, "z"), isolation="read_committed")


# -- the log start above the position ---------------------------------------------------------------------------------


@ASSIGNED.story(SKIP)
def assigned_below_the_log_start(h: Lines, fault: bool) -> None:
    """The offset is out of range at once: with earliest reading begins at the log start, with latest anywhere."""
    log(h)
    expire(h, 3)
    assign(h, 0, reset="earliest" if fault else "latest")
    read(h, 5, 6)


@ASSIGNED.story(SKIP)
def assigned_where_records_expired(h: Lines, fault: bool) -> None:
    """The reset is unknown. Expired records need not be read; with the fault a later snapshot still holds them."""
    log(h)
    assign(h, 0)
    if not fault:
        expire(h, 3)
    read(h, 3, 6)
    if fault:
        h.dump("A", *((n, f"0v{n}") for n in range(SENT)))


@ASSIGNED.story("poll_skip/external")
def expired_while_it_read(h: Lines, fault: bool) -> None:
    """The position expired between two polls, and `latest` moves it to the log end, with or without an error."""
    log(h)
    assign(h, 0)
    read(h, 0, 1)
    expire(h, 4)
    read(h, 6, 6, reset="earliest" if fault else "latest")


@ASSIGNED.story("poll_skip/external")
def out_of_range_while_it_read(h: Lines, fault: bool) -> None:
    """OFFSET_OUT_OF_RANGE on a poll: the consumer resets its position."""
    log(h)
    assign(h, 0)
    read(h, 0, 1)
    expire(h, 2)
    fields = {"cluster": "A", "topic": h.topic("t"), "partition": 0, "reset": "earliest" if fault else "latest"}
    h.line("c1", "fail", "poll", error="OFFSET_OUT_OF_RANGE", **fields)
    read(h, 5, 6, reset=fields["reset"])


@ASSIGNED.story("nonmonotonic_poll/external")
def out_of_range_after_a_truncation(h: Lines, fault: bool) -> None:
    """The log was truncated below the consumer's position; it resets to the log start."""
    log(h)
    assign(h, 0)
    read(h, 0, 6)
    error = "_TRANSPORT" if fault else "_AUTO_OFFSET_RESET"
    h.line("c1", "fail", "poll", cluster="A", topic=h.topic("t"), partition=0, error=error)
    read(h, 2, 6, reset="earliest")


# -- members of groups ------------------------------------------------------------------------------------------------


@ASSIGNED.story(SKIP)
def told_where_the_group_stood(h: Lines, fault: bool) -> None:
    """akka/alpakka-kafka#1016: the next member begins after what the last one had read and not processed."""
    log(h)
    assign(h, 0, group="g")
    read(h, 0, 4, group="g")
    committed(h, 3)
    fetched(h, 3)
    assign(h, 3, by="c2", group="g")
    read(h, 5 if fault else 3, 6, by="c2", group="g")


@ASSIGNED.story(SKIP)
def from_the_committed_offset(h: Lines, fault: bool) -> None:
    """The assignment has no offset: the group's committed offset counts."""
    log(h)
    assign(h, 0, group="g")
    read(h, 0, 2, group="g")
    committed(h, 3)
    assign(h, by="c2", group="g")
    read(h, 5 if fault else 3, 6, by="c2", group="g")


@ASSIGNED.story(SKIP)
def only_polls_name_the_group(h: Lines, fault: bool) -> None:
    """Polls name the group, the assignment does not."""
    log(h)
    assign(h, 0)
    read(h, 0, 2, group="g")
    committed(h, 3)
    assign(h, by="c2")
    read(h, 5 if fault else 3, 6, by="c2", group="g")


@ASSIGNED.story(SKIP)
def subscribed_after_a_commit(h: Lines, fault: bool) -> None:
    """A subscription that names no partition covers every partition with a committed offset."""
    log(h)
    assign(h, 0, group="g")
    read(h, 0, 2, group="g")
    committed(h, 3)
    h.line("c1", "ok", "crash", cluster="A", group=h.named("g"))
    assign(h, by="c2", p=None, f="subscribe", group="g")
    read(h, 4 if fault else 3, 6, by="c2", group="g")


@ASSIGNED.story(SKIP)
def a_commit_of_unknown_outcome(h: Lines, fault: bool) -> None:
    """The next member may begin from a commit of unknown outcome, but not from a failed one."""
    log(h)
    assign(h, 0, group="g")
    read(h, 0, 4, group="g")
    committed(h, 3)
    committed(h, 5, "fail" if fault else "info")
    assign(h, by="c2", group="g")
    read(h, 5, 6, by="c2", group="g")


@ASSIGNED.story(SKIP)
def another_member_went_on_in_between(h: Lines, fault: bool) -> None:
    """c1, c2, and c1 again, each after the other's commits; with the fault c1 leaves out one after the last of them."""
    log(h)
    assign(h, 0, group="g")
    read(h, 0, 1, group="g")
    committed(h, 2)
    assign(h, by="c2", group="g")
    read(h, 2, 3, by="c2", group="g")
    committed(h, 4, by="c2")
    assign(h, group="g")
    read(h, 5 if fault else 4, 6, group="g")


@ASSIGNED.story("poll_skip/external")
def another_member_went_on_untold(h: Lines, fault: bool) -> None:
    """No assignment is recorded, but another member read and committed: the partition had been reassigned."""
    log(h)
    assign(h, 0, group="g")
    read(h, 0, 1, group="g")
    if not fault:
        read(h, 2, 3, by="c2", group="g")
        committed(h, 4, by="c2")
    read(h, 4, 6, group="g")


@ASSIGNED.story(SKIP)
def nothing_was_committed(h: Lines, fault: bool) -> None:
    """The fetch returns no offset, so the reset counts; without a fetch there may be an unrecorded commit."""
    log(h)
    assign(h, by="c2", group="g", reset="earliest")
    if fault:
        fetched(h, -1, reset="earliest")
    read(h, 3, 6, by="c2", group="g")


@ASSIGNED.story(SKIP)
def its_own_position_counts(h: Lines, fault: bool) -> None:
    """Assigned again without an offset: the member may keep its position, though it is above its committed offset."""
    log(h)
    assign(h, 0, group="g")
    read(h, 0, 3, group="g")
    committed(h, 2)
    assign(h, group="g")
    read(h, 5 if fault else 4, 6, group="g")
