"""Stories of order: concurrent sends, sequences of a new epoch, offsets committed within transactions."""

from __future__ import annotations

from typing import Any

from jsonl_story import Lines, Pack

ORDER = Pack("kafka-clean")
CALM = Pack("kafka-clean")  # without faults and retries


def under_way(h: Lines, values: str, offsets: dict[str, int | None], answers: str = "", **fields: Any) -> None:
    """Sends are invoked one after the other, then complete in the order of `answers`; None: outcome unknown."""
    place = {"cluster": "A", "topic": h.topic("t"), "partition": 0, **fields}
    for value in values:
        h.line("p1", "invoke", "send", value=h.named(value), **place)
    for value in answers or values:
        offset = offsets[value]
        h.line("p1", "info" if offset is None else "ok", "send", value=h.named(value), offset=offset, **place)


def shown(h: Lines, offsets: dict[str, int], **fields: Any) -> None:
    """The log, and a reader of it."""
    records = sorted((offset, value) for value, offset in offsets.items())
    h.dump("A", *((offset, value, fields) if fields else (offset, value) for offset, value in records))
    h.poll("A", *records)


# -- concurrent sends -------------------------------------------------------------------------------------------------


@CALM.story("reordered", "nonmonotonic_send")
def five_under_way(h: Lines, fault: bool) -> None:
    """Asynchronous producers; acknowledged in order."""
    at = {"a": 0, "b": 1, "c": 3 if fault else 2, "d": 2 if fault else 3, "e": 4}
    under_way(h, "abcde", dict(at))
    shown(h, at)


@CALM.story("reordered", "nonmonotonic_send")
def answered_out_of_order(h: Lines, fault: bool) -> None:
    """Two connections, one callback thread: acknowledgements come in any order; the order of offsets counts."""
    at = {"a": 1, "b": 0, "c": 2} if fault else {"a": 0, "b": 1, "c": 2}
    under_way(h, "abc", dict(at), answers="cab")
    shown(h, at)


@ORDER.story("reordered", "nonmonotonic_send")
def idempotent_with_faults(h: Lines, fault: bool) -> None:
    """KAFKA-5494: retries with several requests in flight; a producer id means that order is guaranteed."""
    at = {"a": 1, "b": 0} if fault else {"a": 0, "b": 1}
    h.line("nemesis", "info", "kill", node=1)
    under_way(h, "ab", dict(at), pid=7, epoch=0)
    shown(h, at)


@ORDER.story("reordered", "nonmonotonic_send")
def without_idempotence(h: Lines, fault: bool) -> None:
    """max.in.flight 5, producer id -1: a retry may land after later sends, not after sends invoked after its ack."""
    h.line("nemesis", "info", "kill", node=1)
    if fault:
        h.send("A", "a", at=1, pid=-1)
        h.send("A", "b", at=0, pid=-1)
    else:
        under_way(h, "ab", {"a": 1, "b": 0}, pid=-1)
    shown(h, {"a": 1, "b": 0})


@ORDER.story("reordered", "nonmonotonic_send")
def nobody_says_whether_idempotent(h: Lines, fault: bool) -> None:
    """A fault, and a retry among concurrent sends: the client may have resent what the broker had refused."""
    h.line("nemesis", "info", "kill", node=1)
    if fault:
        h.send("A", "a", at=1)
        h.send("A", "b", at=0)
    else:
        under_way(h, "ab", {"a": 1, "b": 0}, retry=True)
    shown(h, {"a": 1, "b": 0})


@ORDER.story("lost_write/gone")
def one_under_way_ends_unknown(h: Lines, fault: bool) -> None:
    """A send of unknown outcome that is not in the log is not lost. With the fault an acknowledged one is missing."""
    at: dict[str, int | None] = {"a": 0, "b": None, "c": 1, "d": 2}
    under_way(h, "abcd", at, pid=7, epoch=0)
    kept = {"a": 0, "c": 1, "d": 2}
    if fault:
        del kept["c"]
    h.dump("A", *((offset, value) for value, offset in kept.items()), leo=3)


@ORDER.story("reordered", "nonmonotonic_send")
def named_operations(h: Lines, fault: bool) -> None:
    """Completions are paired by `op`, where a client does not know the value when it is acknowledged."""
    place = {"cluster": "A", "topic": h.topic("t"), "partition": 0, "pid": 7, "epoch": 0}
    for number, value in enumerate("abc"):
        h.line("p1", "invoke", "send", op=number, value=h.named(value), **place)
    for number, offset in ((1, 0 if fault else 1), (0, 1 if fault else 0), (2, 2)):
        h.line("p1", "ok", "send", op=number, value=h.named("abc"[number]), offset=offset, **place)
    shown(h, {"b": 0, "a": 1, "c": 2} if fault else {"a": 0, "b": 1, "c": 2})


@ORDER.story("commit_lost")
def commits_under_way(h: Lines, fault: bool) -> None:
    """Asynchronous commits, acknowledged in the order in which they were sent."""
    place = {"cluster": "A", "group": h.named("g"), "topic": h.topic("t"), "partition": 0}
    for type_ in ("invoke", "ok"):
        for offset in (3, 5, 7):
            h.line("c1", type_, "commit_offset", offset=offset, **place)
    h.both("c2", "fetch_offset", done={"offset": 5 if fault else 7}, **place)


@ORDER.story("poll_skip/external")
def polls_between_sends_under_way(h: Lines, fault: bool) -> None:
    """One process polls while its sends are pending."""
    place = {"cluster": "A", "topic": h.topic("t"), "partition": 0}
    h.send("A", "a", "b", "c", at=0, by="p2")
    read = ((0, ["a"]), (2, ["c"])) if fault else ((0, ["a"]), (1, ["b", "c"]))
    for number, (first, values) in enumerate(read):
        h.line("p1", "invoke", "send", value=h.named(f"s{number}"), **place)
        h.line("p1", "invoke", "poll", **place)
        pairs = [[first + n, h.named(v)] for n, v in enumerate(values)]
        h.line("p1", "ok", "poll", value=pairs, isolation="read_uncommitted", **place)
    for number in (1, 0):
        h.line("p1", "ok", "send", value=h.named(f"s{number}"), offset=3 + number, **place)
    h.dump("A", *enumerate(["a", "b", "c", "s0", "s1"]))


# -- sequences of a new epoch -----------------------------------------------------------------------------------------


def of(seq: int, epoch: int = 0, pid: int = 7) -> dict[str, Any]:
    return {"pid": pid, "pepoch": epoch, "seq": seq, "lepoch": 0}


def logged(h: Lines, *records: Any, **ends: Any) -> None:
    """A log; each producer id is a separate producer."""
    for offset, value, fields in records:
        if value is not None:
            h.send("A", value, at=offset, by=f"w{fields['pid']}", txn=fields.get("txn"))
    h.dump("A", *records, **ends)


@ORDER.story("sequence_gap")
def epoch_goes_on_where_the_last_ended(h: Lines, fault: bool) -> None:
    """KAFKA-12152, with the epoch bumped twice and another producer in between."""
    first = 2 if fault else 0
    logged(
        h, (0, "a", of(0)), (1, "b", of(1)), (2, "x", of(0, pid=8)), (3, "c", of(first, 2)), (4, "d", of(first + 1, 2))
    )


@ORDER.story("sequence_gap")
def epoch_begins_late_above_the_log_start(h: Lines, fault: bool) -> None:
    """The log start is an excuse where the first batch may have expired, not where the old epoch is still there."""
    old = [(10, "a", of(4))] if fault else []
    logged(h, *old, (11, "b", of(3, 1)), (12, "c", of(4, 1)), log_start=10 if fault else 11)


@ORDER.story("sequence_gap")
def epoch_begins_late_in_a_transaction(h: Lines, fault: bool) -> None:
    """KIP-890: each transaction has its own epoch with sequences from 0; its marker has the next epoch."""
    one, two = {"txn": "T1", **of(0)}, {"txn": "T2", **of(5 if fault else 0, 1)}
    end = {"ctl": "COMMIT", "pid": 7, "lepoch": 0}
    for txn in ("T1", "T2"):
        h.txn("A", "commit", txn, by="w7")
    logged(
        h,
        *((0, "a", one), (1, "b", {**one, "seq": 1}), (2, None, {**end, "txn": "T1", "pepoch": 1})),
        *((3, "c", two), (4, None, {**end, "txn": "T2", "pepoch": 2})),
    )


@ORDER.story("sequence_gap")
def epoch_after_a_hole(h: Lines, fault: bool) -> None:
    """Where offsets are missing between the epochs (a cleaner, a mirror that drops aborted batches) it is unknown."""
    at = 1 if fault else 4
    logged(h, (0, "a", of(0)), (at, "b", of(2, 1)), (at + 1, "c", of(3, 1)))


@ORDER.story("sequence_gap")
def wraps_within_an_epoch(h: Lines, fault: bool) -> None:
    """2^31 - 1 is followed by 0; the first epoch in the log may begin at any sequence."""
    last = 2**31 - 1
    logged(h, (0, "a", of(last - 1, 3)), (1, "b", of(last, 3)), (2, "c", of(1 if fault else 0, 3)))


# -- offsets committed within transactions ----------------------------------------------------------------------------


def staged(h: Lines, offset: int, end: str | None, answer: str = "ok", txn: str = "T1") -> None:
    """An offset of group g committed within a transaction; end: commit, abort, or None."""
    h.txn("A", "begin", txn, by="q")
    h.both("q", "commit_offset", **_group(h), offset=offset, txn=h.named(txn))
    if end is not None:
        h.txn("A", end, txn, answer, by="q")


def _group(h: Lines) -> dict[str, Any]:
    return {"cluster": "A", "group": h.named("g"), "topic": h.topic("t"), "partition": 0}


def fetched(h: Lines, offset: int | None) -> None:
    """An offset fetch afterwards, and its result."""
    h.both("c2", "fetch_offset", done={"offset": offset}, **_group(h))


@ORDER.story("commit_lost")
def of_a_committed_transaction(h: Lines, fault: bool) -> None:
    """CORE-17000: the transaction commits, and the group has no offset."""
    staged(h, 4, "commit")
    fetched(h, -1 if fault else 4)


@ORDER.story("commit_lost")
def of_an_aborted_transaction(h: Lines, fault: bool) -> None:
    """The group keeps its old offset; the aborted one must not be returned."""
    h.offsets("commit_offset", "A", 2)
    staged(h, 4, "abort")
    fetched(h, 4 if fault else 2)


@ORDER.story("commit_lost")
def of_an_undecided_transaction(h: Lines, fault: bool) -> None:
    """The old offset and the new one are allowed, an older one is not."""
    h.offsets("commit_offset", "A", 1)
    h.offsets("commit_offset", "A", 2)
    staged(h, 4, "commit", "info")
    fetched(h, 2)
    fetched(h, 1 if fault else 4)


@ORDER.story("commit_lost")
def of_a_transaction_before_another_commit(h: Lines, fault: bool) -> None:
    """The later commit counts, even if it is lower; the transaction's offset is the older one."""
    staged(h, 9, "commit")
    h.offsets("commit_offset", "A", 3)
    fetched(h, 9 if fault else 3)


@ORDER.story("commit_lost")
def aborted_then_done_again(h: Lines, fault: bool) -> None:
    """KIP-98: abort, and process the same batch again in a transaction that commits."""
    staged(h, 4, "abort")
    if not fault:
        staged(h, 4, "commit", txn="T2")
    fetched(h, 4)


@ORDER.story("commit_lost")
def committed_by_the_second_of_two(h: Lines, fault: bool) -> None:
    """Two transactions one after the other; the first one's offset is outdated."""
    staged(h, 4, "commit")
    staged(h, 8, "commit", txn="T2")
    fetched(h, 4 if fault else 8)
