"""Section 1: what clients saw. One thing is changed in the history, or in a log that clients then read."""

from __future__ import annotations

from dataclasses import replace

from model.logs import batch
from model.mutations.base import Stage, mutation
from model.mutations.victim import SURE, Poll, Victim, valued

SEQUENCES = "the missing batch leaves a gap in its producer's sequences"
PASSED = "readers that were given it before prove that later ones skipped it"


@mutation(
    "lost_write",
    form="gone",
    stage=Stage.LOGS,
    scenario="failover",
    may={"sequence_gap": SEQUENCES, "poll_skip": PASSED},
)
def drop_a_local_write(v: Victim) -> bool:
    """An acknowledged write to B after the failover disappears from every replica."""
    found = v.pick(v.inner(v.batches("B", transactional=False)))
    if found is None:
        return False
    v.drop(*found)
    return True


@mutation(
    "lost_write",
    form="gone",
    stage=Stage.LOGS,
    scenario="steady",
    may={"sequence_gap": SEQUENCES, "poll_skip": PASSED},
)
def drop_on_both_sides(v: Victim) -> bool:
    """An acknowledged write disappears from both A and B: A lost it, not the mirror."""
    found = v.pick(v.inner(v.batches("A", transactional=False)))
    if found is None:
        return False
    for part, b in list(v.everywhere(*found)):
        v.drop(part, b)
    return True


@mutation(
    "lost_write", form="unreadable", may={"poll_skip": "the same reader was given the records before and after it"}
)
def leave_out_of_final_reads(v: Victim) -> bool:
    """No final read returns an acknowledged record, though all are complete; no log was captured."""
    fate = v.pick([f for f in v.sure("A", transactional=False) if f.offset >= v.w.a.partitions[f.partition].start])
    if fate is None:
        return False
    for poll in v.polls(cluster="A", phase="final"):
        for row in poll.records:
            if row["value"] == fate.value:
                v.remove_record(row)
    for table in ("records", "batches", "log_ends"):
        v.tables[table] = [r for r in v.tables[table] if (r["cluster"], r["partition"]) != ("A", fate.partition)]
    return True


@mutation("unseen", may={})
def cut_the_final_read_off(v: Victim) -> bool:
    """The final reads of a partition of A are incomplete and return nothing, and its log was not captured."""
    fate = v.pick(v.sure("A", transactional=False))
    if fate is None:
        return False
    place = ("A", fate.partition)
    for poll in v.polls(cluster="A"):
        for row in poll.records:
            if row["partition"] == fate.partition:
                v.remove_record(row)
    for row in v.rows("final_reads", cluster="A", partition=fate.partition):
        row.update(complete=False, position=row["start_offset"], error="time")
    for table in ("records", "batches", "log_ends"):
        v.tables[table] = [r for r in v.tables[table] if (r["cluster"], r["partition"]) != place]
    return True


@mutation("duplicate", stage=Stage.LOGS, scenario="failover")
def copy_a_local_write(v: Victim) -> bool:
    """An idempotent write to B is appended twice, the second time without its producer id."""
    found = v.pick(v.batches("B", transactional=False, idempotent=True))
    if found is None:
        return False
    part, b = found
    v.add(part, replace(b, pid=-1, pepoch=-1, seq=-1))
    return True


@mutation("inconsistent_offsets", may={"duplicate": "the value that was read there is at its own offset too"})
def read_another_value(v: Victim) -> bool:
    """A reader under load is given, at one offset, the record of another offset of that partition."""
    for poll in v.rng.sample(polls := v.polls(phase="load"), len(polls)):
        values = {}
        for row in poll.records:
            values.setdefault(row["partition"], []).append(row)
        for rows in values.values():
            if len(rows) > 1 and {v.fates[r["value"]].outcome for r in rows} <= set(SURE):
                rows[0]["value"] = rows[1]["value"]
                return True
    return False


@mutation("phantom", form="unsent", may={"inconsistent_offsets": "the log holds another value at that offset"})
def read_what_nobody_sent(v: Victim) -> bool:
    """A reader under load is given a value that no client ever sent."""
    poll = v.pick(v.polls(phase="load"))
    if poll is None:
        return False
    v.rng.choice(poll.records)["value"] = v.w.book.name("ghost")
    return True


@mutation("phantom", form="unsent", stage=Stage.LOGS, scenario="failover")
def write_what_nobody_sent(v: Victim) -> bool:
    """B's log holds a record that no client sent to any cluster."""
    part = v.rng.choice(v.w.b.partitions)
    v.add(part, batch([(None, v.w.book.name("ghost"))], time_ms=v.w.book.now_ms))
    return True


@mutation("misplaced", may={"poll_skip": "the reader was not given it from its own partition"})
def read_it_from_another_topic(v: Victim) -> bool:
    """A poll returns a record under another topic's name."""
    poll = v.pick(v.polls(phase="load"))
    if poll is None:
        return False
    v.rng.choice(poll.records)["topic"] = v.w.book.name("other")
    return True


@mutation(
    "misplaced",
    stage=Stage.LOGS,
    scenario="failover",
    partitions=2,
    may={"poll_skip": PASSED},
)
def move_to_another_partition(v: Victim) -> bool:
    """A write to B is stored in the other partition."""
    found = v.pick(v.inner(v.batches("B", transactional=False, idempotent=False)))
    if found is None:
        return False
    part, b = found
    v.drop(part, b)
    v.add(v.w.b.partitions[1 - part.number], b)
    return True


@mutation("aborted_read", form="failed", stage=Stage.LOGS, scenario="failover")
def refused_and_written(v: Victim) -> bool:
    """B's log holds a record whose send definitely failed."""
    fate = v.pick([f for f in v.fates.values() if f.outcome == "failed" and f.cluster == "B"])
    if fate is None:
        return False
    v.add(v.w.b.partitions[fate.partition], batch([(None, fate.value)], time_ms=v.w.book.now_ms))
    return True


@mutation(
    "reordered",
    stage=Stage.LOGS,
    scenario="failover",
    producers=("plain", "plain"),
    consumers=0,
    groups=0,
    share=False,
    may={"ack_mismatch": "each was acknowledged with the other's offset"},
)
def swap_two_writes(v: Victim) -> bool:
    """Two writes of one producer to B are swapped in the log."""
    found = v.batches("B", transactional=False, idempotent=False)
    for part, one in found:
        for other_part, two in found:
            same = part is other_part and one.base < two.base and len(one.records) == len(two.records)
            if same and v.fates[one.records[0].value].client == v.fates[two.records[0].value].client:
                v.put(part, valued(one, [r.value for r in two.records]))
                v.put(part, valued(two, [r.value for r in one.records]))
                return True
    return False


def _middle(v: Victim, *, most_gap: int = 1) -> tuple[Poll, int] | None:
    """A poll under load and the number of a record with acknowledged neighbors of its partition on both sides."""
    choices = []
    for poll in v.polls(phase="load"):
        for i in range(1, len(poll.records) - 1):
            around = poll.records[i - 1 : i + 2]
            if len({r["partition"] for r in around}) == 1 and v.fates[around[1]["value"]].outcome in SURE:
                choices.append((poll, i))
    return v.pick(choices)


@mutation("poll_skip", form="internal")
def leave_out_of_a_poll(v: Victim) -> bool:
    """A poll leaves out a record between two others."""
    found = _middle(v)
    if found is None:
        return False
    poll, i = found
    if poll.op.get("group") is not None or poll.records[i]["offset"] < _start(v, poll, i):
        return False
    v.remove_record(poll.records[i])
    return True


def _start(v: Victim, poll: Poll, i: int) -> int:
    return v.cluster(poll.op["cluster"]).partitions[poll.records[i]["partition"]].start


@mutation("poll_skip", form="assigned", consumers=2, trouble=(), producers=("idempotent", "plain"))
def begin_to_read_too_late(v: Victim) -> bool:
    """The first poll of a consumer after an assignment leaves out the record at the assigned offset."""
    place: dict[tuple[str, int], int] = {}
    choices = []
    for op in v.ops.values():
        if op["type"] != "ok":
            continue
        for row in v.records[op["index"]] if op["f"] in ("assign", "poll") else ():
            key = (op["process"], row["partition"])
            if op["f"] == "assign":
                place[key] = row["offset"]
            elif row["offset"] == place.pop(key, None) and v.fates[row["value"]].outcome in SURE:
                kept = v.cluster(op["cluster"]).partitions[row["partition"]].start <= row["offset"]
                later = [r for r in v.records[op["index"]] if r["partition"] == key[1] and r["offset"] > row["offset"]]
                choices += [row] if kept and later and op["phase"] == "load" else []
    chosen = v.pick(choices)
    if chosen is not None:
        v.remove_record(chosen)
    return chosen is not None


@mutation("nonmonotonic_poll", form="internal", may={"poll_skip": "it later skips what it had already read"})
def swap_within_a_poll(v: Victim) -> bool:
    """A poll returns two records in the wrong order."""
    found = _middle(v)
    if found is None:
        return False
    poll, i = found
    if poll.op.get("group") in {row["group"] for row in v.tables["group_offsets"] if row["kind"] == "share"}:
        return False  # share groups do not guarantee order
    one, two = poll.records[i - 1], poll.records[i]
    one["position"], two["position"] = two["position"], one["position"]
    return True


@mutation("nonmonotonic_send", may={"ack_mismatch": "each record is at the offset that was acknowledged for the other"})
def swap_two_acknowledgements(v: Victim) -> bool:
    """Two sends of one process are acknowledged with each other's offsets."""
    told = v.sure("A", transactional=False)
    for one in told:
        for two in told:
            mine = (one.process, one.partition) == (two.process, two.partition)
            if mine and one.offset < two.offset and one.offset >= v.w.a.partitions[one.partition].start:
                one.row["offset"], two.row["offset"] = two.offset, one.offset
                return True
    return False


@mutation(
    "ack_mismatch", form="elsewhere", may={"nonmonotonic_send": "later sends were acknowledged with lower offsets"}
)
def shift_an_acknowledgement(v: Victim) -> bool:
    """A send is acknowledged with an offset above that of its record."""
    told = [f for f in v.sure("A", transactional=False) if f.offset >= v.w.a.partitions[f.partition].start]
    fate = v.pick(told)
    if fate is None:
        return False
    fate.row["offset"] += 1_000
    return True


@mutation(
    "end_offset_regressed",
    form="high_watermark",
    may={"lso_wrong": "a transaction that is decided above the lower high watermark is open below it"},
)
def lower_a_high_watermark(v: Victim) -> bool:
    """A later snapshot shows a lower high watermark under the same leader epoch."""
    looks = [r for r in v.rows("log_ends", cluster="A") if r.get("leader_epoch") is not None]
    for row in v.rng.sample(looks, len(looks)):
        same = {k: row[k] for k in ("partition", "leader", "leader_epoch")}
        earlier = [r for r in looks if r["time_ns"] < row["time_ns"] and all(r[k] == x for k, x in same.items())]
        if earlier and (before := max(r["high_watermark"] for r in earlier)) > row["log_start"]:
            row["high_watermark"] = before - 1
            row["last_stable"] = min(row["last_stable"], before - 1)
            return True
    return False


@mutation("stuck", form="client", scenario="failover")
def never_complete_a_send(v: Victim) -> bool:
    """A send that was invoked after healing never completes."""
    begun = [op for op in v.ops.values() if op["f"] == "send" and op["type"] == "invoke" and op["phase"] == "scenario"]
    early = [op for op in begun if op["time_ns"] < 60 * 10**9]
    op = v.pick(early)
    if op is None:
        return False
    ends = {o["index"] for o in v.ops.values() if o.get("invoke_index") == op["index"]}
    v.tables["ops"] = [o for o in v.tables["ops"] if o["index"] not in ends]
    v.tables["op_records"] = [r for r in v.tables["op_records"] if r["op_index"] not in ends]
    return True


@mutation("stuck", form="mirror", scenario="steady", trouble=())
def never_catch_up(v: Victim) -> bool:
    """The mirror reports lag and makes no progress, long after healing."""
    late = [r for r in v.rows("mirror_states", event="look", partition=0) if r["time_ns"] > 47 * 10**9]
    for row in late:
        row.update(lag=3, destination_offset=late[0]["destination_offset"])
    return bool(late)
