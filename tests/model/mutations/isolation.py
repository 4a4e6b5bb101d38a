"""Section 1: what readers saw of transactions."""

from __future__ import annotations

from model.mutations.base import mutation
from model.mutations.victim import Victim


@mutation(
    "aborted_read",
    form="aborted",
    producers=("txn", "steps"),
    consumers=2,
    may={"precommitted_read": "the reader is given all that a read_uncommitted one was"},
)
def read_committed_shows_aborted(v: Victim) -> bool:
    """A read_committed reader is given a record of an aborted transaction, at its offset."""
    for poll in v.polls(isolation="read_uncommitted"):
        if any(v.fates[r["value"]].outcome == "aborted" for r in poll.records):
            for op in v.ops.values():
                if op["process"] == poll.op["process"] and op["f"] == "poll":
                    op["isolation"] = "read_committed"
            return True
    return False


@mutation("precommitted_read", producers=("txn",))
def read_own_uncommitted(v: Victim) -> bool:
    """A transaction reads a record that it has sent itself and not yet committed."""
    done = [op for op in v.ops.values() if op["f"] == "txn" and op["type"] == "ok"]
    op = v.pick(done)
    if op is None:
        return False
    op["isolation"] = "read_committed"
    sent = v.records[op["index"]]
    v.tables["op_records"].append({**sent[0], "action": "poll", "position": len(sent)})
    return True


@mutation(
    "torn_transaction", producers=("txn", "steps"), may={"poll_skip": "readers passed over the record that is left out"}
)
def tear_a_transaction(v: Victim) -> bool:
    """read_committed readers are given one record of a committed transaction and never another."""
    finals = v.polls(phase="final", isolation="read_committed", cluster="A")
    shown = [
        (v.fates[r["value"]].txn, r) for p in finals for r in p.records if v.fates[r["value"]].outcome == "committed"
    ]
    whole = [row for txn, row in shown if sum(t == txn for t, _ in shown) > 1]
    row = v.pick(whole)
    if row is None:
        return False
    for poll in v.polls(isolation="read_committed", cluster="A"):
        for record in [r for r in poll.records if r["value"] == row["value"]]:
            v.remove_record(record)
    return True


@mutation(
    "cycle_G1c",
    form="wr",
    producers=("txn", "txn"),
    sends=10,
    may={"precommitted_read": "one of the two reads before the other commits"},
)
def read_in_a_circle(v: Victim) -> bool:
    """Two committed transactions each read what the other wrote."""
    done = [op for op in v.ops.values() if op["f"] == "txn" and op["type"] == "ok" and op["cluster"] == "A"]
    for one in done:
        for two in done:
            if one["client"] != two["client"]:
                for reader, writer in ((one, two), (two, one)):
                    reader["isolation"] = "read_committed"
                    sent = v.records[writer["index"]][0]
                    place = len(v.records[reader["index"]])
                    row = {**sent, "op_index": reader["index"], "action": "poll", "position": place}
                    v.tables["op_records"].append(row)
                return True
    return False
