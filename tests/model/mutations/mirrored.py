"""Section 2: the two logs. The mirror's copies are changed, or replicas and checksums of one cluster."""

from __future__ import annotations

from dataclasses import replace

from model.logs import Batch, Partition, moved
from model.mutations.base import Stage, mutation
from model.mutations.clients import PASSED, SEQUENCES
from model.mutations.victim import Victim, valued

SHORTER = {
    "groups": 0,
    "share": False,
    "may": {"end_offset_regressed": "it goes back within its leader epoch", "stuck": "the last stable offset is old"},
}
"""A snapshot of the copy ends too early; no group's offset is compared with it."""
SHORT = "the copy ends before what the mirror had described"
COPIED = {"consumers": 0, "groups": 0, "share": False}
"""No client read from B while it was mirrored, so no read contradicts the change."""


def _copy(
    v: Victim, *, transactional: bool | None = None, idempotent: bool | None = None
) -> tuple[Partition, Batch] | None:
    return v.pick(v.batches("B", origin="A", transactional=transactional, idempotent=idempotent))


def _client(v: Victim, b: Batch) -> str:
    return v.fates[b.records[0].value or ""].client


@mutation("mirror_loss", stage=Stage.LOGS, may={"sequence_gap": SEQUENCES, "poll_skip": PASSED})
def drop_a_copy(v: Victim) -> bool:
    """The mirror skips a batch."""
    found = [(p, b) for p, b in v.batches("B", origin="A") if v.w.a.partitions[p.number].start <= b.base]
    chosen = v.pick(v.inner(found))
    if chosen is None:
        return False
    v.drop(*chosen)
    return True


@mutation("mirror_loss", stage=Stage.LOGS, scenario="steady", trouble=(), groups=0, share=False, consumers=0)
def lose_the_tail(v: Victim) -> bool:
    """The mirror never copies the last batch, although it was not stopped."""
    part = v.rng.choice(v.w.b.partitions)
    data = [b for p, b in v.batches("B", origin="A") if p is part]
    if not data or part.log.batches[-1] is not data[-1]:
        return False
    v.rewrite(part, lambda log: log[:-1])
    for replica in part.replicas.values():
        replica.empty_end = 0 if replica.batches else replica.start
    part.hw = part.end
    v.cap_looks(part)
    for row in v.rows("mirror_states", partition=part.number):
        row.update(lag=0, destination_offset=min(row["destination_offset"], part.end))
    return True


@mutation(
    "mirror_duplicate",
    stage=Stage.LOGS,
    scenario="steady",
    may={"duplicate": "one value is at two offsets on B"},
)
def copy_a_batch_again(v: Victim) -> bool:
    """The mirror copies a batch again after a restart."""
    found = _copy(v, transactional=False)
    if found is None:
        return False
    part, b = found
    if b.base < v.w.a.partitions[part.number].start:
        return False
    v.add(part, b)
    return True


@mutation(
    "mirror_reorder",
    stage=Stage.LOGS,
    may={"offset_identity": "A holds other batches at these offsets"},
    **COPIED,
)
def swap_two_copies(v: Victim) -> bool:
    """Two batches are swapped on B."""
    found = [(p, b) for p, b in v.batches("B", origin="A") if v.w.a.partitions[p.number].start <= b.base]
    for part, one in found:
        for other, two in found:
            alike = one.pid == two.pid and len(one.records) == len(two.records)
            if part is other and one.base < two.base and alike and _client(v, one) == _client(v, two):
                v.put(part, valued(one, [r.value for r in two.records]))
                v.put(part, valued(two, [r.value for r in one.records]))
                return True
    return False


@mutation("offset_identity", stage=Stage.LOGS)
def change_a_key(v: Victim) -> bool:
    """A mirrored batch has a different key."""
    found = _copy(v)
    if found is None:
        return False
    part, b = found
    if b.base < v.w.a.partitions[part.number].start:
        return False
    records = tuple(replace(r, key="another") for r in b.records)
    v.put(part, replace(b, records=records).sealed())
    return True


@mutation(
    "gap_identity",
    stage=Stage.LOGS,
    scenario="steady",
    may={
        "offset_identity": "after the first renumbered batch the two logs hold different batches at the same offsets",
        "lso_wrong": "earlier snapshots show the original offsets",
    },
    **COPIED,
)
def renumber_copies(v: Victim) -> bool:
    """From one batch on, every copy is one offset higher: a gap that A does not have."""
    found = _copy(v)
    if found is None:
        return False
    part, first = found
    if first.base < v.w.a.partitions[part.number].start:
        return False
    v.rewrite(part, lambda log: [moved(b, b.base + 1, b.epoch) if b.base >= first.base else b for b in log])
    return True


@mutation("topic_id")
def create_the_topic_anew(v: Victim) -> bool:
    """B's topic has a topic ID of its own."""
    rows = v.rows("batches", cluster="B")
    for row in rows:
        row["topic_id"] = "another id"
    return bool(rows) and bool(v.rows("batches", cluster="A"))


@mutation("retention_gap", trouble=("expiry", "link", "pauses"), sends=10)
def keep_silent_about_a_gap(v: Victim) -> bool:
    """The mirror skips records that expired on A and does not report the gap; B has what was before it."""
    told = [r for r in v.tables["mirror_states"] if r["error"] and _has_older(v, r["partition"])]
    for row in told:
        row["error"] = None
    return bool(told)


def _has_older(v: Victim, partition: int) -> bool:
    return v.w.b.partitions[partition].start < v.w.a.partitions[partition].start


@mutation("replica_divergence", brokers=3)
def change_one_replica(v: Victim) -> bool:
    """One follower of A holds a different record."""
    part = v.rng.choice(v.w.a.partitions)
    broker = max(part.replicas.keys() - {part.leader})
    rows = v.rows("batches", cluster="A", broker=broker, partition=part.number, control=False)
    row = v.pick([r for r in rows if r["base_offset"] >= part.start])
    if row is None:
        return False
    row["crc"] += 1
    for record in v.rows("records", cluster="A", broker=broker, partition=part.number, base_offset=row["base_offset"]):
        record.update(value=f"{record['value']}?", value_hash=record["value_hash"] + 1)
    return True


@mutation("replica_divergence", brokers=3)
def drop_on_one_replica(v: Victim) -> bool:
    """One follower of B lacks a batch in the middle."""
    part = v.rng.choice(v.w.b.partitions)
    if len(part.log.batches) < 3:
        return False
    broker = max(part.replicas.keys() - {part.leader})
    gone = part.log.batches[1].base
    for table in ("batches", "records"):
        place = ("B", broker, part.number, gone)
        column = ("cluster", "broker", "partition", "base_offset")
        v.tables[table] = [r for r in v.tables[table] if tuple(r[c] for c in column) != place]
    return gone >= part.start


@mutation("crc_invalid")
def damage_a_batch(v: Victim) -> bool:
    """The checksum stored in one replica's batch is not that of its bytes."""
    row = v.pick(v.tables["batches"])
    if row is None:
        return False
    row["crc_ok"] = False
    return True


@mutation(
    "copy_gone",
    form="seen",
    scenario="steady",
    trouble=(),
    groups=0,
    share=False,
    may={**SHORTER["may"], "lso_wrong": "its last stable offset is above a transaction whose marker it lacks"},
)
def end_below_the_high_watermark(v: Victim) -> bool:
    """A later snapshot of the copy ends below the high watermark of an earlier one."""
    looks = [r for r in v.rows("log_ends", cluster="B") if r.get("leader_epoch") is not None]
    for row in v.rng.sample(looks, len(looks)):
        before = [r for r in looks if r["time_ns"] < row["time_ns"] and r["partition"] == row["partition"]]
        end = max((r["high_watermark"] for r in before), default=0) - 1
        if end > row["log_start"]:
            row.update({name: min(end, row[name]) for name in ("log_end", "high_watermark", "last_stable")})
            return True
    return False
