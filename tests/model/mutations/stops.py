"""Section 2: stops, failbacks and unclean elections."""

from __future__ import annotations

from dataclasses import replace

from model.logs import Partition, open_transactions
from model.mutations.base import Stage, mutation
from model.mutations.mirrored import COPIED, SHORT
from model.mutations.victim import Victim


@mutation(
    "stop_cut",
    stage=Stage.LOGS,
    scenario="failover",
    on_stop="abort",
    zombie=True,
    trouble=(),
    **COPIED,
    may={
        "stuck": "the last stable offset does not advance",
    },
)
def leave_it_open_at_the_stop(v: Victim) -> bool:
    """The stop leaves a transaction open instead of aborting it."""
    for part in v.w.b.partitions:
        cut = v.w.cuts[part.number]
        aborts = [b for b in part.log.batches if b.control == "ABORT" and b.base >= cut]
        below = open_transactions([b for b in part.log.batches if b.base < cut])
        closing = [b for b in aborts if b.pid in below]
        if closing:
            v.drop(part, closing[0])
            return True
    return False


@mutation("stop_cut", scenario="failover", may={"cross_partition": "below that cut a transaction is incomplete"})
def record_a_lower_cut(v: Victim) -> bool:
    """The recorded cut is below the last mirrored record."""
    for part in v.w.b.partitions:
        cut = v.w.cuts[part.number]
        copied = [b for p, b in v.batches("B", origin="A") if p is part]
        if copied and copied[-1].base >= v.w.a.partitions[part.number].start and copied[-1].last < cut:
            for row in v.rows("mirror_states", state="STOPPED", partition=part.number):
                row.update(source_offset=copied[-1].base, destination_offset=copied[-1].base)
            return True
    return False


@mutation(
    "cross_partition",
    stage=Stage.LOGS,
    scenario="failover",
    partitions=2,
    producers=("txn",),
    on_stop="truncate",
    **{
        **COPIED,
        "may": {"torn_transaction": "a local transaction of unknown outcome lost a part", "copy_gone": SHORT},
    },
)
def cut_a_transaction_in_two(v: Victim) -> bool:
    """One partition is stopped before a transaction, the other after it. Every asynchronous mirror may do that."""
    one, two = v.w.b.partitions
    copies = v.batches("B", origin="A", transactional=True)
    if v.batches("B"):
        return False
    first, second = ({v.fates[b.records[0].value].txn: b for p, b in copies if p is part} for part in (one, two))
    for txn in sorted(first.keys() & second.keys(), key=str):
        cut = second[txn].base
        if not open_transactions([b for b in two.log.batches if b.base < cut]):
            _end_at(v, two, cut)
            return True
    return False


def _end_at(v: Victim, part: Partition, cut: int) -> None:
    """The mirror of this partition was stopped there, and never reported lag 0 before."""
    v.rewrite(part, lambda log: [b for b in log if b.last < cut])
    for replica in part.replicas.values():
        replica.empty_end = cut
    part.hw = part.end
    v.cap_looks(part)
    v.w.cuts[part.number] = cut
    for row in v.rows("mirror_states", partition=part.number):
        row["lag"] = None
        if row["state"] == "STOPPED":
            row.update(source_offset=cut, destination_offset=cut)


@mutation("failback", form="unequal", stage=Stage.LOGS, scenario="failback", **COPIED)
def change_what_was_mirrored_back(v: Victim) -> bool:
    """After the failback a batch above the cut differs between A and B."""
    found = [(p, b) for p, b in v.batches("A", origin="B") if b.base >= v.w.cuts[p.number]]
    chosen = v.pick(found)
    if chosen is None:
        return False
    part, b = chosen
    v.put(part, replace(b, records=tuple(replace(r, key="another") for r in b.records)).sealed())
    return True


@mutation("failback", form="unreported", scenario="failback", lagging=True, sends=10, **COPIED)
def discard_in_silence(v: Victim) -> bool:
    """The failback discards acknowledged writes of A and does not report it."""
    told = [r for r in v.rows("mirror_states", cluster="A") if r["error"]]
    for row in told:
        row["error"] = None
    held = {r.value for p in v.w.a.partitions for b in p.log.batches for r in b.records}
    return any(f.value not in held and f.offset >= v.w.cuts[f.partition] for f in v.sure("A"))


UNCLEAN = {
    "scenario": "steady",
    "producers": ("plain", "idempotent"),
    "trouble": ("unclean",),
    "groups": 0,
    "share": False,
    "zombie": False,
    "sends": 10,
    "partitions": 1,
}


@mutation("unclean_divergence", stage=Stage.LOGS, **UNCLEAN)
def carry_on_after_an_unclean_election(v: Victim) -> bool:
    """After an unclean election on A discarded a record, B holds a different record at its offset than A."""
    lost = {b.base for part in v.w.a.partitions for b in part.dropped}
    for part, b in v.batches("B", origin="A"):
        if b.base in lost:
            v.put(part, replace(b, records=tuple(replace(r, key="another") for r in b.records)).sealed())
            return True
    return False


@mutation(
    "unclean_divergence",
    stage=Stage.LOGS,
    may={"sequence_gap": "the records of its producer in between are lost"},
    **UNCLEAN,
)
def keep_what_the_source_lost(v: Victim) -> bool:
    """B's log ends with a record that A lost in an unclean election."""
    part = v.w.a.partitions[0]
    known = {r.value for b in part.log.batches for r in b.records}
    for b in part.dropped:
        if not known & {r.value for r in b.records}:
            v.add(v.w.b.partitions[0], b)
            return True
    return False
