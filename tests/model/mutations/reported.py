"""Faults known from public reports: reads before a commit, undecided transactions, new epochs, values sent again,
recreated topics, and the transactions of an exactly-once mirror."""

from __future__ import annotations

from dataclasses import replace

from model.book import Row
from model.logs import Batch, Partition
from model.mutations.base import Stage, mutation
from model.mutations.clients import PASSED, SEQUENCES
from model.mutations.victim import SURE, Poll, Victim, outcomes

AGAIN = "the reader is given the same value again where it is committed"


def _give(v: Victim, poll: Poll, part: Partition, b: Batch, n: int = 0) -> None:
    """Let a poll return one more record, in offset order."""
    record = b.records[n]
    row: Row = {"op_index": poll.op["index"], "action": "poll", "topic": part.topic, "partition": part.number}
    row |= {"offset": record.offset, "value": record.value, "key": record.key, "leader_epoch": b.epoch}
    mine = [r for r in poll.records if r["partition"] == part.number and r["offset"] < record.offset]
    place = max((r["position"] for r in mine), default=-1) + 1
    for other in poll.records:
        other["position"] += other["position"] >= place
    v.tables["op_records"].append({**row, "position": place})


@mutation(
    "precommitted_read",
    producers=("steps", "steps"),
    consumers=2,
    sends=10,
    may={
        "nonmonotonic_poll": AGAIN,
        "poll_skip": "the reader was not given the records before it",
        "reordered": "it was read before earlier ones",
    },
)
def read_before_the_commit(v: Victim) -> bool:
    """A read_committed poll returns a record before the commit of its transaction is requested."""
    asked = {op["txn"]: op["index"] for op in v.ops.values() if op["f"] == "txn_commit" and op["type"] == "invoke"}
    for fate in v.sure("A", transactional=True):
        sent = fate.row["op_index"] if fate.row else 0
        part = v.w.a.partitions[fate.partition]
        for op in v.ops.values():
            between = sent < op["index"] < asked.get(fate.txn or "", 0)
            if between and op["f"] == "poll" and op["type"] == "ok" and op["cluster"] == "A":
                if op["isolation"] != "read_committed" or op.get("group"):
                    continue
                for b in part.log.batches:
                    if b.control is None and b.base >= part.start and [r.value for r in b.records] == [fate.value]:
                        _give(v, Poll(op, v.records[op["index"]]), part, b)
                        return True
    return False


@mutation(
    "torn_transaction",
    stage=Stage.LOGS,
    partitions=2,
    producers=("txn",),
    consumers=0,
    groups=0,
    share=False,
    trouble=(),
    scenario="steady",
    sends=10,
    may={
        "lost_write": "its sends were acknowledged and one partition aborts them",
        "marker_missing": "its markers contradict each other",
        "transaction_outcome": "its markers contradict each other",
    },
)
def tear_an_undecided_transaction(v: Victim) -> bool:
    """A transaction whose outcome is unknown is committed in one partition and aborted in the other."""
    ends = [(part, b, m) for part in v.w.a.partitions for b, m in outcomes(part) if m is not None]
    for part, b, m in ends:
        fate = v.fates[b.records[0].value or ""]
        others = [c for p, c, _ in ends if p is not part and v.fates[c.records[0].value or ""].txn == fate.txn]
        if fate.outcome == "unknown" and m.control == "COMMIT" and others:
            for there, end in list(v.everywhere(part, m)):
                v.put(there, replace(end, control="ABORT").sealed())
            return True
    return False


@mutation(
    "sequence_gap",
    stage=Stage.LOGS,
    producers=("txn",),
    tv2=True,
    base=0,
    trouble=(),
    scenario="steady",
    zombie=False,
    sends=10,
)
def begin_an_epoch_late(v: Victim) -> bool:
    """A producer's first batch after an epoch bump does not begin at sequence 0."""
    for part, b in v.batches("A", transactional=True):
        earlier = [x for x in part.log.batches if x.pid == b.pid and x.base < b.base and x.control is None]
        if earlier and all(x.pepoch < b.pepoch for x in earlier):
            same = (b.pid, b.pepoch)
            for there in (part, v.w.b.partitions[part.number]):
                v.rewrite(there, lambda log, same=same: [_shifted(x) if _key(x) == same else x for x in log])  # type: ignore[misc]
            return True
    return False


def _key(b: Batch) -> tuple[int, int] | None:
    return (b.pid, b.pepoch) if b.control is None else None


def _shifted(b: Batch) -> Batch:
    return replace(b, seq=b.seq + 2).sealed()


@mutation(
    "aborted_read",
    form="aborted",
    producers=("txn", "steps"),
    resends=True,
    sends=10,
    trouble=(),
    may={
        "duplicate": "both copies were read",
        "nonmonotonic_poll": AGAIN,
        "reordered": "it was read where it was aborted",
        "poll_skip": "the reader goes on after it, and what was before it was not due yet",
    },
)
def read_the_aborted_attempt(v: Victim) -> bool:
    """A read_committed reader is given a value from an aborted transaction; a second transaction committed it."""
    for poll in v.polls(phase="final", isolation="read_committed", cluster="A"):
        for part in v.w.a.partitions:
            for b, m in outcomes(part):
                committed = v.fates[b.records[0].value or ""].outcome == "committed"
                if m is not None and m.control == "ABORT" and committed:
                    _give(v, poll, part, b)
                    return True
    return False


@mutation(
    "lost_write", form="gone", stage=Stage.LOGS, recreated=True, may={"sequence_gap": SEQUENCES, "poll_skip": PASSED}
)
def lose_a_write_to_the_new_topic(v: Victim) -> bool:
    """A topic is deleted and recreated, and a write to the new topic is lost."""
    assert v.w.recreated is not None
    made = max(op["index"] for op in v.ops.values() if op["f"] == "create_topic" and op["type"] == "ok")
    part = v.w.recreated.current.partitions[0]
    for b in part.log.batches[:-1]:
        fates = [v.fates[r.value or ""] for r in b.records]
        ends = [v.ops[f.row["op_index"]] for f in fates if f.row and f.outcome == "acked" and f.offset is not None]
        if len(ends) == len(fates) and all(op["invoke_index"] > made for op in ends):
            for replica in part.replicas.values():
                replica.batches = [x for x in replica.batches if x.base != b.base]
            return True
    return False


@mutation(
    "duplicate",
    stage=Stage.LOGS,
    mirror="mm2",
    exactly_once=True,
    scenario="steady",
    may={
        "mirror_duplicate": "B holds one record of A twice",
        "mirror_reorder": "the second copy comes after later records",
        "reordered": "the second copy comes after later records",
        "sequence_gap": "the second copy's sequences are not new",
        "late_write": "the second copy has the transaction's epoch",
        "epoch_regressed": "the second copy has an older epoch",
    },
)
def commit_a_copy_twice(v: Victim) -> bool:
    """MirrorMaker's exactly-once worker commits the same records twice."""
    for part in v.w.b.partitions:
        for b, m in outcomes(part):
            if m is not None and m.control == "COMMIT" and v.fates[b.records[0].value or ""].outcome in SURE:
                v.add(part, replace(b, seq=-1, pid=-1, pepoch=-1, transactional=False))
                return True
    return False


@mutation(
    "mirror_loss",
    stage=Stage.LOGS,
    mirror="mm2",
    exactly_once=True,
    scenario="steady",
    consumers=0,
    groups=0,
    share=False,
    producers=("idempotent", "plain"),
)
def abort_a_copy_and_forget_it(v: Victim) -> bool:
    """A transaction of MirrorMaker is aborted on B, and its records, which A still has, are never written again."""
    kept = {r.value for part in v.w.a.partitions for b in part.log.batches if b.base >= part.start for r in b.records}
    for part in v.w.b.partitions:
        for b, m in outcomes(part):
            alone = all(v.fates[r.value or ""].outcome in SURE and r.value in kept for r in b.records)
            if m is not None and m.control == "COMMIT" and alone:
                v.put(part, replace(m, control="ABORT").sealed())
                return True
    return False


@mutation(
    "aborted_read",
    form="aborted",
    mirror="mm2",
    exactly_once=True,
    scenario="steady",
    producers=("idempotent", "plain"),
    may={
        "duplicate": "both copies were read",
        "nonmonotonic_poll": AGAIN,
        "reordered": "it was read where it was aborted",
    },
)
def read_a_copy_that_the_mirror_aborted(v: Victim) -> bool:
    """A read_committed reader of B is given a copy from an aborted transaction of MirrorMaker."""
    for poll in v.polls(phase="final", isolation="read_committed", cluster="B"):
        for part in v.w.b.partitions:
            for b, m in outcomes(part):
                if m is not None and m.control == "ABORT":
                    _give(v, poll, part, b)
                    return True
    return False
