"""Stories of a value's fate: read too early, undecided, sent again, duplicated by its client or by a mirror."""

from __future__ import annotations

from jsonl_story import Lines, Pack, Record

KAFKA = Pack("kafka-clean")
EXACTLY = Pack("mm2-exactly-once")
UNLOGGED = Pack("mm2-exactly-once")  # without a snapshot of B's log
T1, T2 = ({"txn": t, "pid": pid, "pepoch": 0, "lepoch": 0} for t, pid in (("T1", 7), ("T2", 8)))
COMMIT, ABORT = {"ctl": "COMMIT"}, {"ctl": "ABORT"}
RC, RU = {"isolation": "read_committed"}, {"isolation": "read_uncommitted"}


def begun(h: Lines, *parts: int, txn: str = "T1", at: int = 0, cluster: str = "A") -> None:
    """A transaction with one record `xP` in each of some partitions, not ended yet."""
    h.txn(cluster, "begin", txn)
    for p in parts:
        h.send(cluster, f"x{p}", at=at, p=p, txn=txn)


# --- read before the commit is requested ------------------------------------------------------------------------------


@KAFKA.story("precommitted_read")
def read_before_the_commit_is_asked_for(h: Lines, fault: bool) -> None:
    """streamnative/kop#1856; in the twin the commit is pending, and may have taken effect."""
    begun(h, 0)
    if fault:
        h.poll("A", (0, "x0"), **RC)
    h.line("p1", "invoke", "txn_commit", cluster="A", txn=h.named("T1"))
    if not fault:
        h.poll("A", (0, "x0"), **RC)
    h.line("p1", "ok", "txn_commit", cluster="A", txn=h.named("T1"))


@KAFKA.story("precommitted_read")
def read_and_never_committed(h: Lines, fault: bool) -> None:
    """The producer died with its transaction open; read_uncommitted readers may see it."""
    begun(h, 0)
    h.poll("A", (0, "x0"), **(RC if fault else RU))


@KAFKA.story("precommitted_read")
def read_before_a_commit_that_ended_unknown(h: Lines, fault: bool) -> None:
    """The outcome is unknown, but nothing is committed before the commit is requested."""
    begun(h, 0)
    if fault:
        h.poll("A", (0, "x0"), by="c2", **RC)
    h.txn("A", "commit", "T1", end="info")
    h.poll("A", (0, "x0"), **RC)


@KAFKA.story("precommitted_read")
def the_order_of_the_history_counts_not_clocks(h: Lines, fault: bool) -> None:
    """The reader's clock is 30 s ahead, in the twin 30 s behind."""
    begun(h, 0)
    h.wait(40_000)
    if not fault:
        h.txn("A", "commit", "T1")
    h.poll("A", (0, "x0"), **RC)
    h.events[-1]["time"] += 30_000 if fault else -30_000
    if fault:
        h.txn("A", "commit", "T1")


@EXACTLY.story("precommitted_read")
def the_copy_is_read_before_the_commit_on_the_source(h: Lines, fault: bool) -> None:
    """A mirror that reads committed data cannot copy uncommitted records."""
    begun(h, 0)
    if fault:
        h.poll("B", (0, "x0"), **RC)
    h.txn("A", "commit", "T1")
    if not fault:
        h.poll("B", (0, "x0"), **RC)
    h.poll("A", (0, "x0"), by="c2", **RC)


# --- undecided transactions -------------------------------------------------------------------------------------------


@KAFKA.story("torn_transaction")
def undecided_and_shown_in_part(h: Lines, fault: bool) -> None:
    """Bufstream 0.1.0: one record is visible, so the transaction committed; its other record is skipped."""
    begun(h, 0, 1)
    h.txn("A", "commit", "T1", end="info")
    h.send("A", "y", at=2, p=1, by="p2")
    h.poll("A", (0, "x0"), p=0, **RC)
    h.poll("A", *([] if fault else [(0, "x1")]), (2, "y"), p=1, by="c2", **RC)


@KAFKA.story("torn_transaction")
def undecided_and_ended_in_two_ways(h: Lines, fault: bool) -> None:
    """The logs of two partitions contradict each other; no poll returned either record."""
    begun(h, 0, 1)
    h.txn("A", "commit", "T1", end="info")
    h.dump("A", (0, "x0", T1), (1, None, {**T1, **COMMIT}), p=0)
    h.dump("A", (0, "x1", T1), (1, None, {**T1, **(ABORT if fault else COMMIT)}), p=1)


@KAFKA.story("torn_transaction")
def undecided_and_gone_in_one_log(h: Lines, fault: bool) -> None:
    """Committed in one partition; in the other the acknowledged record is missing, or, in the twin, still open."""
    begun(h, 0, 1)
    h.txn("A", "commit", "T1", end="info")
    h.send("A", "y", at=1, p=1, by="p2")
    h.dump("A", (0, "x0", T1), (1, None, {**T1, **COMMIT}), p=0)
    h.dump("A", *([] if fault else [(0, "x1", T1)]), (1, "y"), p=1, lso=2 if fault else 0)


@KAFKA.story("inconsistent_offsets")
def an_acknowledgement_binds_whatever_became_of_the_rest(h: Lines, fault: bool) -> None:
    """A record of an undecided transaction was acknowledged at offset 0; a reader finds another value there."""
    begun(h, 0)
    h.txn("A", "commit", "T1", end="info")
    h.send("A", "y", end="info", by="p2")
    h.poll("A", (0 if fault else 2, "y"), **RU)


@KAFKA.story()
def undecided_and_hidden_is_lawful(h: Lines, fault: bool) -> None:
    """Readers may skip the records of an undecided transaction: it may have been aborted."""
    begun(h, 0, 1)
    h.txn("A", "commit", "T1", end="info")
    h.send("A", "y", at=2, p=1, by="p2")
    h.poll("A", *([(0, "x1")] if fault else []), (2, "y"), p=1, **RU)


# --- the same value again ---------------------------------------------------------------------------------------------


@KAFKA.story("aborted_read/failed")
def refused_and_sent_to_another_partition(h: Lines, fault: bool) -> None:
    """An application resends after a definite failure; the failed record must not be stored as well."""
    h.send("A", "v", p=0, end="fail", error="NOT_ENOUGH_REPLICAS")
    h.send("A", "v", at=0, p=1, retry=True)
    h.poll("A", (0, "v"), p=1)
    if fault:
        h.poll("A", (0, "v"), p=0, by="c2")


@KAFKA.story("aborted_read/aborted")
def aborted_and_sent_again_outside(h: Lines, fault: bool) -> None:
    """The aborted copy is at 0, the committed one at 2; read_uncommitted readers may see both."""
    begun(h, 0)
    h.txn("A", "abort", "T1")
    h.send("A", "x0", at=2, retry=True)
    h.poll("A", *([(0, "x0")] if fault else []), (2, "x0"), **RC)
    h.poll("A", (0, "x0"), (2, "x0"), by="c2", **RU)


@KAFKA.story("aborted_read/aborted")
def aborted_without_an_offset_and_sent_again(h: Lines, fault: bool) -> None:
    """The first copy's offset was never acknowledged; the second send's acknowledgement shows which copy is which."""
    h.txn("A", "begin", "T1")
    h.send("A", "v", txn="T1", end="info")
    h.txn("A", "abort", "T1")
    h.txn("A", "begin", "T2")
    h.send("A", "v", at=2, txn="T2")
    h.txn("A", "commit", "T2")
    h.poll("A", *([(0, "v")] if fault else []), (2, "v"), **RC)
    h.poll("A", (0, "v"), (2, "v"), by="c2", **RU)


@KAFKA.story("lost_write/passed")
def the_second_send_is_lost(h: Lines, fault: bool) -> None:
    """A reader that saw the aborted copy has not seen the second send."""
    begun(h, 0)
    h.txn("A", "abort", "T1")
    h.send("A", "x0", at=2, retry=True)
    h.send("A", "y", at=3, by="p2")
    h.poll("A", (0, "x0"), *([] if fault else [(2, "x0")]), (3, "y"), **RU)


@KAFKA.story("duplicate")
def refused_unknown_and_acknowledged(h: Lines, fault: bool) -> None:
    """Sends of one value end fail, info and ok: at most two copies."""
    for end in ("fail", "info", "ok"):
        h.send("A", "v", at=1 if end == "ok" else None, end=end)
    h.poll("A", (0, "v"), (1, "v"), *([(2, "v")] if fault else []))


@KAFKA.story("aborted_read/aborted")
def the_log_says_which_copy_is_aborted(h: Lines, fault: bool) -> None:
    """Neither send was acknowledged with an offset; the log names the transaction of each copy."""
    for txn, end in (("T1", "abort"), ("T2", "commit")):
        h.txn("A", "begin", txn)
        h.send("A", "v", txn=txn, end="info")
        h.txn("A", end, txn)
    h.poll("A", *([(0, "v")] if fault else []), (2, "v"), **RC)
    h.dump("A", (0, "v", T1), (1, None, {**T1, **ABORT}), (2, "v", T2), (3, None, {**T2, **COMMIT}))


# --- client and log ---------------------------------------------------------------------------------------------------


@KAFKA.story("aborted_read/aborted")
def aborted_for_the_client_and_committed_in_the_log(h: Lines, fault: bool) -> None:
    """KAFKA-17754, in the second of two partitions; no poll returned the record."""
    begun(h, 0, 1)
    h.txn("A", "abort", "T1")
    h.dump("A", (0, "x0", T1), (1, None, {**T1, **ABORT}), p=0)
    h.dump("A", (0, "x1", T1), (1, None, {**T1, **(COMMIT if fault else ABORT)}), p=1)


@KAFKA.story("aborted_read/failed")
def refused_and_in_the_log(h: Lines, fault: bool) -> None:
    """A definite error ("not written") for a record that was written; no poll returned it."""
    h.send("A", "v", end="fail", error="NOT_ENOUGH_REPLICAS")
    h.send("A", "w", at=1 if fault else 0)
    h.dump("A", *([(0, "v"), (1, "w")] if fault else [(0, "w")]))


@KAFKA.story("inconsistent_offsets")
def two_values_in_one_log(h: Lines, fault: bool) -> None:
    """Bufstream 0.1.0: one dump, two acknowledged values at one offset."""
    h.send("A", "v0", "v1", at=0)
    h.send("A", "w1", at=1 if fault else 2, by="p2")
    h.dump("A", (0, "v0"), (1, "v1"), (1 if fault else 2, "w1"))


@KAFKA.story("inconsistent_offsets")
def an_unacknowledged_value_at_an_acknowledged_offset(h: Lines, fault: bool) -> None:
    """The outcome of the second value's send is unknown."""
    h.send("A", "v0", at=5)
    h.send("A", "w0", end="info", by="p2")
    h.dump("A", (5, "v0"), *([(5, "w0")] if fault else []), log_start=5)


# --- clients without idempotence --------------------------------------------------------------------------------------


def _timed_out_and_again(h: Lines, pid: int = -1) -> None:
    h.send("A", "v0", at=0, pid=pid)
    h.send("A", "v1", end="info", pid=pid)
    h.send("A", "v1", at=2, pid=pid, retry=True)


def _log(*values: str, pid: int = -1) -> list[Record]:
    return [(n, value, {"pid": pid}) for n, value in enumerate(values)]


@EXACTLY.story("duplicate", "mirror_duplicate")
def doubled_by_its_client(h: Lines, fault: bool) -> None:
    """linkedin/brooklin#809: two sends, two copies on A and on B; not three."""
    _timed_out_and_again(h)
    h.dump("A", *_log("v0", "v1", "v1"))
    copies = ["v0", "v1", "v1", *(["v1"] if fault else [])]
    h.dump("B", *_log(*copies))
    h.poll("B", *enumerate(copies))


@EXACTLY.story("duplicate", "mirror_duplicate")
def one_of_two_sends_arrived(h: Lines, fault: bool) -> None:
    """A holds one copy of the two sends, so B may hold one."""
    _timed_out_and_again(h)
    h.events[-1]["offset"] = 1
    h.dump("A", *_log("v0", "v1"))
    h.dump("B", *_log("v0", "v1", *(["v1"] if fault else [])))


@KAFKA.story("duplicate")
def more_copies_than_sends(h: Lines, fault: bool) -> None:
    """The broker stored three copies of what was sent twice."""
    _timed_out_and_again(h)
    copies = ["v0", "v1", "v1", *(["v1"] if fault else [])]
    h.dump("A", *_log(*copies))
    h.poll("A", *enumerate(copies))


@KAFKA.story("duplicate")
def repeated_within_the_client(h: Lines, fault: bool) -> None:
    """One send; an idempotent client retries too, but the broker drops the duplicate."""
    pid = 7 if fault else -1
    h.send("A", "v0", at=0, pid=pid)
    h.dump("A", *((o, "v0", {"pid": pid, "pepoch": 0 if fault else -1, "seq": o if fault else -1}) for o in (0, 1)))


# --- a mirror's own transactions --------------------------------------------------------------------------------------


def _mirrored(h: Lines, second: str = "ABORT") -> None:
    """A holds v0, v1, v2; B each in a transaction of the mirror, v1 in two of them; second: how the first one ended."""
    h.send("A", "v0", "v1", "v2", at=0)
    h.dump("A", (0, "v0"), (1, "v1"), (2, "v2"))
    held: list[Record] = []
    for n, (value, end) in enumerate((("v0", "COMMIT"), ("v1", second), ("v1", "COMMIT"), ("v2", "COMMIT"))):
        of = {"txn": f"m{n}", "pid": 40, "pepoch": n}
        held += [(2 * n, value, of), (2 * n + 1, None, {**of, "ctl": end})]
    h.dump("B", *held)


@EXACTLY.story("aborted_read/aborted")
def an_aborted_copy_is_shown(h: Lines, fault: bool) -> None:
    """KIP-618: read_uncommitted readers may see both copies, read_committed ones only the second."""
    _mirrored(h)
    h.poll("B", (0, "v0"), *([(2, "v1")] if fault else []), (4, "v1"), (6, "v2"), **RC)
    h.poll("B", (0, "v0"), (2, "v1"), (4, "v1"), (6, "v2"), by="c2", **RU)


@EXACTLY.story("duplicate", "mirror_duplicate")
def both_copies_are_committed(h: Lines, fault: bool) -> None:
    """A task that continues after its successor has started."""
    _mirrored(h, second="COMMIT" if fault else "ABORT")
    h.poll("B", (0, "v0"), *([(2, "v1")] if fault else []), (4, "v1"), (6, "v2"), **RC)


@EXACTLY.story("poll_skip/external")
def the_committed_copy_is_skipped(h: Lines, fault: bool) -> None:
    """Between the polls there are an aborted copy, which a reader may skip, and a committed one."""
    _mirrored(h)
    h.poll("B", (0, "v0"), (2, "v1"), (4, "v1"), (6, "v2"), by="c2", **RU)
    h.poll("B", (0, "v0"), **RC)
    h.poll("B", *([] if fault else [(4, "v1")]), (6, "v2"), **RC)


@UNLOGGED.story("duplicate_or_aborted")
def copies_of_which_no_log_tells(h: Lines, fault: bool) -> None:
    """Only a read_uncommitted reader saw both copies: one of them may be aborted."""
    h.send("A", "v0", "v1", at=0)
    h.dump("A", (0, "v0"), (1, "v1"))
    h.poll("B", (0, "v0"), *([(2, "v1")] if fault else []), (4, "v1"), **RU)
    h.poll("B", (0, "v0"), (4, "v1"), by="c2", **RC)


@UNLOGGED.story("duplicate")
def copies_that_a_committed_reader_saw(h: Lines, fault: bool) -> None:
    """Copies that a read_committed reader saw are not aborted."""
    h.send("A", "v0", "v1", at=0)
    h.dump("A", (0, "v0"), (1, "v1"))
    h.poll("B", (0, "v0"), *([(2, "v1")] if fault else []), (4, "v1"), **RC)


@EXACTLY.story("duplicate", "mirror_duplicate")
def aborted_on_the_source_and_again(h: Lines, fault: bool) -> None:
    """A client's transaction is aborted and repeated: only one copy is mirrored."""
    h.txn("A", "begin", "T1")
    h.send("A", "v", at=0, txn="T1")
    h.txn("A", "abort", "T1")
    h.txn("A", "begin", "T2")
    h.send("A", "v", at=2, txn="T2")
    h.txn("A", "commit", "T2")
    h.dump("A", (0, "v", T1), (1, None, {**T1, **ABORT}), (2, "v", T2), (3, None, {**T2, **COMMIT}))
    h.dump("B", (0, "v"), *([(1, "v")] if fault else []))
    h.poll("B", (0, "v"), **RC)
