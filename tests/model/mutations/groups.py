"""Section 4: offsets of consumer and share groups."""

from __future__ import annotations

from itertools import pairwise

from model.book import Row
from model.mutations.base import mutation
from model.mutations.victim import Poll, Victim, outcomes

S = 10**9


@mutation("group_out_of_range", form="sync", groups=2)
def shift_a_group_offset(v: Victim) -> bool:
    """A synced offset is beyond B's log end."""
    row = v.pick(v.rows("group_offsets", cluster="B", event="sync", kind="consumer"))
    if row is None:
        return False
    row["offset"] += 1_000
    return True


@mutation("group_out_of_range", form="look", groups=2, scenario="steady", may={})
def see_a_group_offset_out_of_range(v: Victim) -> bool:
    """The last snapshot of a group on B shows an offset beyond the log end."""
    row = v.pick(
        [r for r in v.rows("group_offsets", cluster="B", event="look", kind="consumer") if r["time_ns"] > 80 * S]
    )
    if row is None:
        return False
    row["offset"] += 1_000
    return True


@mutation("share_group", form="range", share=True)
def shift_a_share_group_offset(v: Victim) -> bool:
    """A share group's synced start offset is beyond B's log end."""
    row = v.pick(v.rows("group_offsets", cluster="B", event="sync", kind="share"))
    if row is None:
        return False
    row["offset"] += 1_000
    return True


def _arrival(v: Victim, kind: str) -> tuple[Poll, list[Poll]] | None:
    """The first poll with records of a moved group on B, and all of its polls there."""
    group = v.w.book.name("g0" if kind == "consumer" else "s")
    polls = v.polls(cluster="B", group=group)
    return (polls[0], polls) if polls and any(r["action"] == "poll" for r in polls[0].records) else None


def _skip(v: Victim, kind: str) -> bool:
    found = _arrival(v, kind)
    if found is None:
        return False
    first, polls = found
    group = first.op["group"]
    seen = {r["value"] for p in v.polls(cluster="A", group=group) for r in p.records}
    rows = [r for p in polls for r in p.records]
    for number in {r["partition"] for r in rows}:
        mine = [r for r in rows if r["partition"] == number]
        at_once = [r for r in first.records if r["partition"] == number]
        if len(at_once) < 2 or not v.rows("group_offsets", cluster="B", event="sync", group=group, partition=number):
            continue
        fate = v.fates[at_once[0]["value"]]
        new = fate.value not in seen and fate.cluster == "B" and fate.offset is not None
        if new and sum(r["value"] == fate.value for r in mine) == 1:
            v.remove_record(at_once[0])
            return True
    return False


@mutation(
    "group_skip",
    groups=1,
    scenario="failover",
    sends=10,
    producers=("idempotent", "plain"),
    may={"poll_skip": "its first read leaves out the record at the assigned offset"},
)
def resume_too_late(v: Victim) -> bool:
    """A group that moved to B resumes after a record that it had not processed."""
    return _skip(v, "consumer")


@mutation("share_group", form="skip", share=True, scenario="failover", sends=10, producers=("idempotent", "plain"))
def share_too_late(v: Victim) -> bool:
    """A share group that moved to B resumes after a record that it had not processed."""
    return _skip(v, "share")


@mutation(
    "group_rewind",
    groups=1,
    scenario="failover",
    partitions=1,
    sends=10,
    producers=("plain", "idempotent"),
    trouble=(),
)
def resume_far_too_early(v: Victim) -> bool:
    """A group that moved to B rereads everything from the log start."""
    found = _arrival(v, "consumer")
    if found is None:
        return False
    first, _ = found
    aborted = {b.base for b, m in outcomes(v.w.b.partitions[0]) if m is None or m.control == "ABORT"}
    before = [
        {"action": "poll", "topic": v.w.b.topic, "partition": 0, "offset": r.offset, "value": r.value, "key": r.key}
        for b in v.w.b.partitions[0].log.batches
        for r in b.records
        if b.control is None and b.base not in aborted and r.offset < first.records[0]["offset"]
    ]
    commits = [r["offset"] for r in _commits(v, "A") if r["op_index"] in _acked(v)]
    steps = [b - a for a, b in pairwise(commits)]
    done = max((r["processed"] + 1 for r in _commits(v, "A") if r["op_index"] in _acked(v)), default=0)
    fates = [(r["offset"], v.fates[r["value"]]) for r in before]
    again = sum(offset < done and f.cluster == "A" and f.offset is not None for offset, f in fates)
    lags = [r["lag"] or 0 for r in v.rows("mirror_states", partition=0)]
    if len(steps) < 2 or again <= max(steps) + max(lags):
        return False
    for i, row in enumerate(first.records):
        row["position"] = len(before) + i
    op = first.op["index"]
    v.tables["op_records"] += [{**row, "op_index": op, "position": i} for i, row in enumerate(before)]
    return True


def _commits(v: Victim, letter: str) -> list[Row]:
    group = v.w.book.name("g0")
    mine = {i for i, op in v.ops.items() if op.get("group") == group and op["cluster"] == letter}
    return [r for r in v.tables["op_records"] if r["action"] == "commit" and r["op_index"] in mine]


def _acked(v: Victim) -> set[int]:
    return {i for i, op in v.ops.items() if op["f"] == "commit_offset" and op["type"] == "ok"}


@mutation("group_overwritten", form="active", groups=1, scenario="failover")
def sync_an_active_group(v: Victim) -> bool:
    """The mirror syncs an offset of a group that has members on B."""
    commits = [r for r in _commits(v, "B") if r["op_index"] in _acked(v)]
    if not commits:
        return False
    row = commits[-1]
    at = v.ops[row["op_index"]]["time_ns"] + 1
    _sync(v, row["partition"], row["offset"], at, members=1)
    return True


@mutation(
    "group_overwritten",
    form="behind",
    groups=1,
    scenario="failover",
)
def sync_over_a_commit(v: Victim) -> bool:
    """After the stop the mirror syncs an offset below the one that the group has committed on B."""
    commits = [r for r in _commits(v, "B") if r["op_index"] in _acked(v)]
    late = [r for r in commits if r["offset"] > v.w.b.partitions[r["partition"]].start]
    if not late:
        return False
    row = late[-1]
    newest = [r for r in commits if r["partition"] == row["partition"]][-1]
    if newest is not row:
        return False
    _sync(v, row["partition"], row["offset"] - 1, 72 * S)
    return True


@mutation("group_overwritten", form="stopped", groups=1, scenario="failover")
def sync_after_the_stop(v: Victim) -> bool:
    """The mirror syncs a group, which nobody uses on B, after it was stopped."""
    row = v.pick(list(v.rows("group_offsets", cluster="B", event="sync", kind="consumer")))
    if row is None:
        return False
    name = v.w.book.name("unused")
    place = {"cluster": "B", "kind": "consumer", "topic": row["topic"], "partition": row["partition"]}
    v.w.book.row("group_offsets", **place, group=name, event="sync", offset=row["offset"], time_ns=72 * S)
    return True


def _sync(v: Victim, partition: int, offset: int, time_ns: int, **columns: object) -> None:
    place = {"cluster": "B", "group": v.w.book.name("g0"), "kind": "consumer", "topic": v.w.b.topic}
    v.w.book.row(
        "group_offsets",
        **place,
        event="sync",
        partition=partition,
        offset=offset,
        source_offset=offset,
        time_ns=time_ns,
        **columns,
    )


@mutation("group_overwritten", form="filter", groups=1)
def sync_an_excluded_group(v: Victim) -> bool:
    """The mirror syncs a group that its options exclude."""
    row = v.pick(v.rows("group_offsets", cluster="B", event="sync", kind="consumer"))
    if row is None:
        return False
    v.tables["group_offsets"].append({**row, "group": v.w.book.name("internal")})
    return True


@mutation("group_overwritten", form="missing", groups=1, scenario="steady")
def leave_a_group_out(v: Victim) -> bool:
    """A group that commits on A is never synced (its coordinator was not asked)."""
    seen = v.rows("group_offsets", cluster="A", event="look", kind="consumer")
    v.tables["group_offsets"] = [r for r in v.tables["group_offsets"] if r["cluster"] != "B" or r["kind"] != "consumer"]
    return any(r["time_ns"] < 47 * S for r in seen)


@mutation("commit_lost", groups=1)
def forget_a_commit(v: Victim) -> bool:
    """A snapshot of a group on A shows no offset, though a commit was acknowledged."""
    looks = v.rows("group_offsets", cluster="A", event="look", kind="consumer")
    acked = {(v.ops[r["op_index"]]["group"], r["partition"]) for r in _commits(v, "A") if r["op_index"] in _acked(v)}
    row = v.pick([r for r in looks if r["time_ns"] > 46 * S and (r["group"], r["partition"]) in acked])
    if row is None:
        return False
    row["offset"] = None
    return True


@mutation("commit_lost", groups=1)
def fetch_an_older_commit(v: Victim) -> bool:
    """The last snapshot of a group on A shows an offset older than its last acknowledged commit."""
    mine = [r for r in _commits(v, "A") if r["op_index"] in _acked(v)]
    looks = [r for r in v.rows("group_offsets", cluster="A", event="look", kind="consumer") if r["time_ns"] > 80 * S]
    for look in looks:
        told = [r["offset"] for r in mine if r["partition"] == look["partition"] and _group(v, r) == look["group"]]
        every = [r["offset"] for r in _commits(v, "A") if r["partition"] == look["partition"]]
        if told and told[-1] > look["offset"] - 1 >= 0 and look["offset"] - 1 not in every:
            look["offset"] -= 1
            return True
    return False


def _group(v: Victim, row: Row) -> str:
    return str(v.ops[row["op_index"]]["group"])
