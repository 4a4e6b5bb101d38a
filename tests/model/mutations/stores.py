"""Section 5: objects and the metadata that references them."""

from __future__ import annotations

from model.mutations.base import mutation
from model.mutations.victim import Victim

S = 10**9


@mutation("orphan_objects", objects=True, trouble=())
def forget_to_clean_up(v: Victim) -> bool:
    """An object that no metadata ever referenced is in every snapshot."""
    looks = sorted({(r["time_ns"], r["look"], r["cycle"]) for r in v.rows("objects", event="look")})
    for time_ns, look, cycle in looks:
        row = {"object": v.w.book.name("orphan"), "size": 9, "created_ns": 10 * S, "cycle": cycle, "look": look}
        v.w.book.row("objects", cluster="A", event="look", time_ns=time_ns, **row)
    return bool(looks)


@mutation("referenced_deleted", form="deleted", objects=True, trouble=())
def delete_what_is_named(v: Victim) -> bool:
    """An object is deleted although metadata references it."""
    dropped = {r["object"] for r in v.rows("object_refs", event="drop")}
    row = v.pick([r for r in v.rows("object_refs", event="commit") if r["object"] not in dropped])
    if row is None:
        return False
    name = row["object"]
    v.tables["objects"] = [r for r in v.tables["objects"] if r["object"] != name or r["time_ns"] < 80 * S]
    v.w.book.row("objects", cluster="A", event="delete", object=name, time_ns=70 * S)
    return True


@mutation("referenced_deleted", form="missing", objects=True, trouble=())
def lose_what_is_named(v: Victim) -> bool:
    """The last snapshot lacks an object that metadata references."""
    dropped = {r["object"] for r in v.rows("object_refs", event="drop")}
    row = v.pick([r for r in v.rows("object_refs", event="commit") if r["object"] not in dropped])
    if row is None:
        return False
    name = row["object"]
    v.tables["objects"] = [r for r in v.tables["objects"] if r["object"] != name or r["time_ns"] < 80 * S]
    return True


@mutation("stale_commit", objects=True, trouble=())
def accept_an_old_epoch(v: Victim) -> bool:
    """A batch is accepted under an old broker epoch."""
    row = v.pick(v.rows("object_refs", event="commit"))
    if row is None:
        return False
    row["broker"] = 1_000_000 + int(v.w.book.prefix[1:5])  # a broker has one epoch over all examples
    v.w.book.row(
        "object_refs",
        cluster="A",
        event="epoch",
        broker=row["broker"],
        broker_epoch=row["broker_epoch"] + 1,
        time_ns=row["time_ns"] - 1,
    )
    return True


@mutation("commit_barrier", objects=True, trouble=(), producers=("txn", "steps"))
def show_before_it_is_registered(v: Victim) -> bool:
    """A transaction is visible before one of its batches is registered."""
    shown = {r["txn"]: r["time_ns"] for r in v.rows("object_refs", event="txn")}
    for fate in v.sure("A", transactional=True):
        op = next(op for op in v.ops.values() if op["f"] in ("send", "txn") and fate.row in v.records[op["index"]])
        made = [
            r
            for r in v.rows("object_refs", event="commit", partition=fate.partition)
            if r["base_offset"] <= fate.offset <= r["last_offset"]
        ]
        if op["type"] == "ok" and fate.txn in shown and made:
            for row in made:
                row["time_ns"] = max(row["time_ns"], shown[fate.txn] + 1)
            return True
    return False
