"""Stories that an export to EDN must not change: recreated topics, contradicting completions, concurrent operations,
steps of transactions, and what Jepsen's histories cannot express."""

from __future__ import annotations

from typing import Any

from jsonl_story import Lines, Pack

EXPORTED = Pack("kafka-clean")


def place(h: Lines, **fields: Any) -> dict[str, Any]:
    return {"cluster": "A", "topic": h.topic("t"), "partition": 0, **fields}


def life(h: Lines, values: tuple[str, ...], read: tuple[str, ...], number: int) -> None:
    """One life of a topic: created, written from offset 0, and read."""
    h.both("admin", "create_topic", cluster="A", topic=h.topic("t"))
    h.send("A", *values, at=0, by=f"p{number}")
    h.poll("A", *((n, v) for n, v in enumerate(values) if v in read), by=f"c{number}")


@EXPORTED.story("lost_write/passed")
def three_lives(h: Lines, fault: bool) -> None:
    """Each life of the topic begins at offset 0 again; with the fault one record of the last is missing."""
    for number, values in enumerate((("a0", "a1", "a2"), ("b0", "b1"), ("c0", "c1", "c2"))):
        if number:
            h.both("admin", "delete_topic", cluster="A", topic=h.topic("t"))
        life(h, values, tuple(v for v in values if not (fault and v == "c1")), number)


@EXPORTED.story("inconsistent_offsets")
def made_again(h: Lines, fault: bool) -> None:
    """Offsets 0 and 1 hold other values because the topic was recreated; with the fault it never was."""
    life(h, ("a0", "a1"), ("a0", "a1"), 0)
    if not fault:
        h.both("admin", "delete_topic", cluster="A", topic=h.topic("t"))
        h.both("admin", "create_topic", cluster="A", topic=h.topic("t"))
    for n, value in enumerate(("b0", "b1")):
        h.send("A", value, at=n, by=f"q{n}")
    h.poll("A", (0, "b0"), (1, "b1"), by="c2")


@EXPORTED.story("lost_write/passed")
def ok_and_fail(h: Lines, fault: bool) -> None:
    """One send ends both ok and fail: it may be stored or not. Its neighbor, which ended ok, must not be missing."""
    for value, offset in (("a", 0), ("b", 1), ("c", 2)):
        h.line("p1", "invoke", "send", value=h.named(value), **place(h))
        h.line("p1", "ok", "send", value=h.named(value), offset=offset, **place(h))
        if value == "b":
            h.line("p1", "fail", "send", value=h.named(value), error="late", **place(h))
    h.send("A", "d", at=3)
    h.poll("A", (0, "a"), *([] if fault else [(2, "c")]), (3, "d"))


@EXPORTED.story("aborted_read/failed")
def refused_in_a_committed_transaction(h: Lines, fault: bool) -> None:
    """One send fails, and the application commits the rest; the failed one must not be read."""
    h.txn("A", "begin", "T1")
    h.send("A", "a", at=0, txn="T1")
    h.send("A", "b", txn="T1", end="fail")
    h.send("A", "c", at=1, txn="T1")
    h.txn("A", "commit", "T1")
    h.poll("A", (0, "a"), (1, "c"), *([(3, "b")] if fault else []), isolation="read_committed")


@EXPORTED.story("precommitted_read")
def read_before_anybody_asked_to_commit(h: Lines, fault: bool) -> None:
    """If the steps became one operation, the transaction would count as committed from its begin on."""
    h.txn("A", "begin", "T1")
    h.send("A", "a", at=0, txn="T1")
    if fault:
        h.poll("A", (0, "a"), isolation="read_committed")
    h.txn("A", "commit", "T1")
    if not fault:
        h.poll("A", (0, "a"), isolation="read_committed")


@EXPORTED.story("lost_write/passed", "torn_transaction")
def unknown_in_a_committed_transaction(h: Lines, fault: bool) -> None:
    """A send of unknown outcome may be missing, though its transaction is committed; others may not."""
    h.txn("A", "begin", "T1")
    for value, offset in (("a", 0), ("b", None), ("c", 1)):
        h.send("A", value, at=offset, txn="T1", end="ok" if offset is not None else "info")
    h.txn("A", "commit", "T1")
    h.send("A", "d", at=3, by="p2")
    h.poll("A", *([] if fault else [(0, "a")]), (1, "c"), (3, "d"), isolation="read_committed")


@EXPORTED.story("reordered", "nonmonotonic_send")
def pipelined_in_two_partitions(h: Lines, fault: bool) -> None:
    """Six concurrent sends, acknowledged out of order; each partition keeps its order."""
    at = {0: {"a": 0, "c": 1, "e": 2}, 1: {"b": 0, "d": 2 if fault else 1, "f": 1 if fault else 2}}
    producer = {"pid": 7, "epoch": 0}
    for value in "abcdef":
        h.line("p1", "invoke", "send", value=h.named(value), **place(h, partition=int(value not in at[0]), **producer))
    for value in "fbadce":
        p = 0 if value in at[0] else 1
        h.line("p1", "ok", "send", value=h.named(value), offset=at[p][value], **place(h, partition=p, **producer))
    for p, values in at.items():
        h.poll("A", *sorted((offset, value) for value, offset in values.items()), p=p)


@EXPORTED.story("aborted_read/failed")
def sent_again_after_a_refusal(h: Lines, fault: bool) -> None:
    """Two concurrent sends of one value, distinguished by `op`; there may be no more copies than sends."""
    for op in (1, 2):
        h.line("p1", "invoke", "send", op=op, value=h.named("a"), retry=op == 2, **place(h))
    h.line("p1", "fail", "send", op=1, value=h.named("a"), error="refused", **place(h))
    h.line("p1", "ok", "send", op=2, value=h.named("a"), offset=0, retry=True, **place(h))
    h.poll("A", (0, "a"), *([(1, "a"), (2, "a")] if fault else []))


@EXPORTED.story("commit_lost")
def offset_commits_under_way(h: Lines, fault: bool) -> None:
    """Jepsen's histories have no offset commits."""
    h.send("A", "a", "b", "c", at=0)
    h.poll("A", (0, "a"), (1, "b"), (2, "c"))
    group = {**place(h), "group": h.named("g")}
    for type_ in ("invoke", "ok"):
        for offset in (1, 2, 3):
            h.line("c1", type_, "commit_offset", offset=offset, **group)
    h.both("c2", "fetch_offset", done={"offset": 1 if fault else 3}, **group)


@EXPORTED.story("lost_write/gone")
def gone_from_the_log(h: Lines, fault: bool) -> None:
    """Only the log proves the loss."""
    h.send("A", "a", "b", "c", at=0)
    h.dump("A", (0, "a"), *([] if fault else [(1, "b")]), (2, "c"))


@EXPORTED.story("poll_skip/external")
def where_a_consumer_stands(h: Lines, fault: bool) -> None:
    """An empty poll records its consumer's position."""
    h.send("A", "a", "b", "c", at=0)
    h.poll("A", (0, "a"), (1, "b"), (2, "c"), by="c2")
    h.poll("A", (0, "a"))
    h.poll("A", position=1)
    h.poll("A", *([] if fault else [(1, "b")]), (2, "c"))
