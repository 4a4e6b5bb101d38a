"""Stories of one cluster: what its clients saw. Docstrings name the reports that they come from."""

from __future__ import annotations

from jsonl_story import Lines, Pack

KAFKA = Pack("kafka-clean")
T1 = {"txn": "T1", "pid": 7, "pepoch": 0, "lepoch": 0}
COMMIT, ABORT = {"ctl": "COMMIT", **T1}, {"ctl": "ABORT", **T1}


@KAFKA.story("inconsistent_offsets")
def two_values_served_at_one_offset(h: Lines, fault: bool) -> None:
    """redpanda#3003: after kill and pause two leaders acknowledged the same offset."""
    h.send("A", "a", at=0)
    h.poll("A", (0, "a"), by="c1")
    h.line("nemesis", "info", "kill", node=2)
    h.send("A", "b", at=0 if fault else 1, by="p2")
    h.poll("A", (0, "b") if fault else (1, "b"), by="c2")


@KAFKA.story("aborted_read/aborted")
def aborted_part_seen_on_one_partition(h: Lines, fault: bool) -> None:
    """redpanda#3036: one of two partitions shows its record of an aborted transaction."""
    h.txn("A", "begin", "T1")
    h.send("A", "x0", at=4, p=0, txn="T1")
    h.send("A", "x1", at=9, p=1, txn="T1")
    h.txn("A", "abort", "T1")
    h.send("A", "y", at=11, p=1, by="p2")
    h.poll("A", *([(9, "x1")] if fault else []), (11, "y"), p=1, isolation="read_committed")


@KAFKA.story("torn_transaction", "lost_write/gone")
def half_of_it_closed_by_a_late_abort(h: Lines, fault: bool) -> None:
    """KAFKA-17754: a delayed abort of an earlier transaction aborts a committed one in one partition."""
    h.txn("A", "begin", "T1")
    h.send("A", "x0", at=0, p=0, txn="T1")
    h.send("A", "x1", at=0, p=1, txn="T1")
    h.txn("A", "commit", "T1")
    h.send("A", "y", at=2, p=1, by="p2")
    h.dump("A", (0, "x0", T1), (1, None, COMMIT), p=0)
    h.dump("A", (0, "x1", T1), (1, None, ABORT if fault else COMMIT), (2, "y"), p=1)
    h.poll("A", (0, "x0"), p=0, isolation="read_committed", by="c1")
    h.poll("A", *([] if fault else [(0, "x1")]), (2, "y"), p=1, isolation="read_committed", by="c2")


@KAFKA.story("lost_write/passed")
def passed_over_where_nothing_expired(h: Lines, fault: bool) -> None:
    """A reader begins at offset 2: retention deleted everything below it, or (the fault) only offset 0."""
    h.send("A", "v0", "v1", "v2", "v3", at=0)
    h.both("admin", "retention", cluster="A", topic=h.topic("t"), partition=0, log_start=1 if fault else 2)
    h.poll("A", (2, "v2"), (3, "v3"), by="c1")


@KAFKA.story("lost_write/gone")
def acknowledged_and_gone_after_a_reassignment(h: Lines, fault: bool) -> None:
    """Redpanda 21.11.2 under kill and membership changes: an acknowledged record is missing from the log."""
    h.send("A", "v0", "v1", at=10**12, p=1)
    h.send("A", "v2", at=10**12 + 2, p=1, end="ok" if fault else "info")
    h.send("A", "v3", at=10**12 + 3, p=1)
    h.line("nemesis", "info", "kill", node=1)
    base = 10**12
    h.dump("A", (base, "v0"), (base + 1, "v1"), (base + 3, "v3"), p=1, log_start=base)


@KAFKA.story("nonmonotonic_send", "ack_mismatch/elsewhere")
def told_offset_zero(h: Lines, fault: bool) -> None:
    """Bufstream 0.1.0: some acknowledgements had offset 0."""
    h.send("A", "v0", "v1", at=5)
    h.send("A", "v2", at=0 if fault else 7)
    h.dump("A", (5, "v0"), (6, "v1"), (7, "v2"))


@KAFKA.story("poll_skip/external")
def consumer_leaps_over_a_record(h: Lines, fault: bool) -> None:
    """Jepsen's poll-skip: another consumer read the skipped record."""
    h.send("A", "v0", "v1", "v2", "v3", at=0, p=2)
    h.poll("A", (0, "v0"), p=2)
    h.poll("A", *([] if fault else [(1, "v1")]), (2, "v2"), p=2)
    h.poll("A", (0, "v0"), (1, "v1"), (2, "v2"), (3, "v3"), p=2, by="c2")


@KAFKA.story("stuck/client")
def consumer_that_gets_nothing(h: Lines, fault: bool) -> None:
    """Bufstream 0.1.0: stuck consumers, while another one reads the records."""
    h.send("A", "v0", "v1", "v2", at=0)
    h.poll("A", (0, "v0"), group="g", by="c1")
    for step in range(3):
        h.poll("A", *([] if fault or step else [(1, "v1"), (2, "v2")]), group="g", by="c1")
        h.wait(50_000)
    h.poll("A", (0, "v0"), (1, "v1"), (2, "v2"), by="c2")


@KAFKA.story("nonmonotonic_poll/external")
def consumer_goes_back(h: Lines, fault: bool) -> None:
    """Jepsen's nonmonotonic-poll: without a new assignment; with one it is allowed."""
    h.send("A", "v0", "v1", "v2", at=0)
    h.line("c1", "ok", "assign", cluster="A", topic=h.topic("t"), partition=0)
    h.poll("A", (0, "v0"), (1, "v1"))
    if not fault:
        h.line("c1", "ok", "assign", cluster="A", topic=h.topic("t"), partition=0)
    h.poll("A", (1, "v1"), (2, "v2"))


@KAFKA.story("precommitted_read")
def reads_its_own_open_transaction(h: Lines, fault: bool) -> None:
    """Jepsen's precommitted-read."""
    h.txn("A", "begin", "T1", by="w")
    h.send("A", "x", at=0, txn="T1", by="w")
    if fault:
        h.poll("A", (0, "x"), isolation="read_committed", txn=h.named("T1"), by="w")
    h.txn("A", "commit", "T1", by="w")
    if not fault:
        h.poll("A", (0, "x"), isolation="read_committed", by="w")


@KAFKA.story("reordered")
def later_send_lies_before(h: Lines, fault: bool) -> None:
    """KAFKA-5494: retries with several requests in flight."""
    first, second = ("v1", "v0") if fault else ("v0", "v1")
    h.send("A", "v0", "v1")
    for event in h.events:
        event.pop("offset", None)
    h.poll("A", (0, first), (1, second))


@KAFKA.story("commit_lost")
def commit_gone_with_the_coordinator(h: Lines, fault: bool) -> None:
    """KAFKA-20634, on the second of two partitions: the fetch returns no offset."""
    for p in (0, 1):
        h.offsets("commit_offset", "A", 50, p=p)
    h.line("nemesis", "info", "leader_change", topic="__consumer_offsets")
    h.offsets("fetch_offset", "A", 50, p=0)
    h.offsets("fetch_offset", "A", None if fault else 50, p=1)


@KAFKA.story("commit_lost")
def commit_of_long_ago_comes_back(h: Lines, fault: bool) -> None:
    """The new coordinator loaded an older state: the fetch returns the last commit but one."""
    h.offsets("commit_offset", "A", 10)
    h.offsets("commit_offset", "A", 20)
    if not fault:
        h.offsets("commit_offset", "A", 10, by="c2")  # another member seeks back
    h.offsets("fetch_offset", "A", 10)


@KAFKA.story("misplaced")
def in_the_wrong_partition(h: Lines, fault: bool) -> None:
    """A proxy (or broker) that mixes up partitions."""
    h.send("A", "v", end="info", p=0)
    h.poll("A", (0, "v"), p=1 if fault else 0)


@KAFKA.story("phantom/unsent")
def nobody_sent_what_is_read(h: Lines, fault: bool) -> None:
    """Corruption: Jepsen's checker throws here."""
    h.send("A", "v", at=0)
    h.poll("A", (0, "v"), *([(1, "ghost")] if fault else []))


@KAFKA.story("unseen")
def acknowledged_after_the_last_look(h: Lines, fault: bool) -> None:
    """The write came after the last snapshot: whether it is lost is unknown."""
    h.send("A", "a", at=0)
    h.dump("A", (0, "a"))
    if fault:
        h.send("A", "b", at=1)


@KAFKA.story("lost_write/passed")
def never_read_though_a_later_one_was(h: Lines, fault: bool) -> None:
    """Jepsen's lost-write: polls alone prove it."""
    h.send("A", "v0", "v1", "v2", at=0, p=6)
    h.poll("A", (0, "v0"), p=6, by="c1")
    h.poll("A", *([] if fault else [(1, "v1")]), (2, "v2"), p=6, by="c2")


@KAFKA.story("phantom/taken_back", "inconsistent_offsets")
def uncommitted_record_shown_and_taken_back(h: Lines, fault: bool) -> None:
    """KAFKA-14704: a follower served a record that was truncated later."""
    h.send("A", "k0", at=30, p=2)
    h.send("A", "k1", p=2, end="info")
    h.line("nemesis", "info", "leader_change", frm=3, to=1)
    h.poll("A", (30, "k0"), *([(31, "k1")] if fault else []), p=2, replica=3)
    h.send("A", "z1", at=31, p=2, by="p2")
    h.dump("A", (30, "k0"), (31, "z1"), p=2, log_start=30)


@KAFKA.story("aborted_read/failed")
def refused_for_certain_and_there(h: Lines, fault: bool) -> None:
    """A definite error ("not written") for a record that was written."""
    h.send("A", "v", end="fail", error="NOT_ENOUGH_REPLICAS")
    h.send("A", "w", at=1 if fault else 0)
    h.poll("A", *([(0, "v"), (1, "w")] if fault else [(0, "w")]))


@KAFKA.story("poll_skip/internal")
def left_out_within_one_poll(h: Lines, fault: bool) -> None:
    """Jepsen's int-poll-skip."""
    h.send("A", "v0", "v1", "v2", at=0)
    h.poll("A", (0, "v0"), *([] if fault else [(1, "v1")]), (2, "v2"), group="g", by="c1")
    h.poll("A", (0, "v0"), (1, "v1"), (2, "v2"), by="c2")


@KAFKA.story("nonmonotonic_poll/internal")
def back_within_one_poll(h: Lines, fault: bool) -> None:
    """Jepsen's int-nonmonotonic-poll."""
    h.send("A", "v0", "v1", at=0)
    h.poll("A", *([(1, "v1"), (0, "v0")] if fault else [(0, "v0"), (1, "v1")]))
