"""Section 4: epochs, states, writes to mirrored topics, access rules, configurations, names, memory."""

from __future__ import annotations

from dataclasses import replace

from model.mutations.base import Stage, mutation
from model.mutations.victim import Victim

S = 10**9


@mutation("epoch_invariant", form="log", stage=Stage.LOGS)
def lower_a_leader_epoch(v: Victim) -> bool:
    """In A's log an earlier batch has a higher leader epoch than a later one."""
    part = v.rng.choice(v.w.a.partitions)
    if len(part.log.batches) < 2:
        return False
    first = part.log.batches[0]
    v.put(part, replace(first, epoch=part.log.batches[1].epoch + 7))
    return True


@mutation("epoch_invariant", form="behind", scenario="failover", trouble=("elections",))
def fall_behind_in_epochs(v: Victim) -> bool:
    """Before the stop, B's leader epoch is lower than one that A showed long before."""
    for part in v.w.a.partitions:
        looks = [r for r in v.rows("log_ends", cluster="A", partition=part.number) if r["time_ns"] < 47 * S]
        if max(r["leader_epoch"] for r in looks) > 0:
            for row in v.rows("log_ends", cluster="B", partition=part.number):
                if row["time_ns"] < 55 * S:
                    row["leader_epoch"] = 0
            return True
    return False


@mutation("epoch_invariant", form="local", stage=Stage.LOGS, scenario="failover")
def write_under_the_mirrored_epoch(v: Victim) -> bool:
    """The first local write on B has the same leader epoch as the mirrored records."""
    for part in v.w.b.partitions:
        cut = v.w.cuts[part.number]
        mirrored = [b.epoch for p, b in v.batches("B", origin="A") if p is part]
        if mirrored and [b for p, b in v.batches("B") if p is part]:
            top = max(b.epoch for b in part.log.batches if b.base < cut)
            if top > max(mirrored):
                continue
            v.rewrite(part, lambda log, cut=cut, top=top: [replace(b, epoch=top) if b.base >= cut else b for b in log])
            return True
    return False


@mutation("epoch_invariant", form="stalled", scenario="failover", consumers=1)
def stall_a_consumer(v: Victim) -> bool:
    """A consumer of B is refused with FENCED_LEADER_EPOCH and never reads again."""
    polls = [op for op in v.ops.values() if op["f"] == "poll" and op["cluster"] == "B" and op["phase"] != "final"]
    if not polls:
        return False
    process = polls[-1]["process"]
    done = [op for op in polls if op["process"] == process and op["type"] != "invoke"]
    if not done or done[-1]["time_ns"] < 47 * S:
        return False
    last = done[-1]
    v.tables["op_records"] = [r for r in v.tables["op_records"] if r["op_index"] != last["index"]]
    last.update(type="fail", error="FENCED_LEADER_EPOCH")
    return True


@mutation("written_while_mirrored", form="accepted", scenario="failover", trouble=())
def write_before_the_stop(v: Victim) -> bool:
    """A write to B is accepted while the partition is still mirrored."""
    for op in list(v.ops.values()):
        if op["f"] == "send" and op["cluster"] == "B" and op["type"] == "ok" and op.get("txn") is None:
            invoke = v.ops[op["invoke_index"]]
            first = min(o["time_ns"] for o in v.ops.values() if o["process"] == op["process"])
            if invoke["time_ns"] == first and all(r.get("offset") is not None for r in v.records[op["index"]]):
                invoke["time_ns"], op["time_ns"] = 20 * S, 20 * S + 1_000
                return True
    return False


@mutation("written_while_mirrored", form="unclear", scenario="steady")
def refuse_without_a_reason(v: Victim) -> bool:
    """A write to B is refused with an error that does not give the reason."""
    row = {"action": "send", "topic": v.w.b.topic, "partition": 0, "value": v.w.book.name("refused")}
    v.w.book.now = 30 * S
    process = v.w.process("p")
    v.w.book.operation(process, "send", [row], end="fail", error="UNKNOWN_SERVER_ERROR", cluster="B", client=process)
    return True


@mutation("failover_refused", form="refused", scenario="steady")
def refuse_a_failover(v: Victim) -> bool:
    """A failover is refused: the partition stays mirrored."""
    v.w.book.now = 64 * S
    target = [{"action": "target", "topic": v.w.b.topic, "partition": 0}]
    refusal = {"error": "INVALID_STATE", "error_text": "every partition must be MIRRORING or PAUSED"}
    v.w.book.operation(v.w.book.name("admin"), "failover", target, end="fail", cluster="B", **refusal)
    return True


@mutation("failover_refused", form="ignored", scenario="steady")
def grow_on_after_a_pause(v: Victim) -> bool:
    """A pause is acknowledged, and the mirrored log grows on."""
    target = [{"action": "target", "topic": v.w.b.topic, "partition": 0}]
    v.w.book.now = S
    asked = [op["time_ns"] for op in v.ops.values() if op["f"].startswith("mirror_") and op["time_ns"] > S]
    until = min(asked, default=99 * S)
    looks = [r for r in v.rows("log_ends", cluster="B", partition=0) if 11 * S + 1_000 < r["time_ns"] < until]
    grown = [r["high_watermark"] for r in looks if r.get("high_watermark") is not None]
    if not grown or grown[-1] == grown[0]:
        return False
    v.w.book.operation(v.w.book.name("admin"), "mirror_pause", target, cluster="B")
    return True


@mutation("state_graph", form="edge", scenario="failover")
def take_a_stop_back(v: Victim) -> bool:
    """A partition is MIRRORING between STOPPING and STOPPED."""
    row = v.pick(v.rows("mirror_states", state="STOPPING"))
    if row is None:
        return False
    v.tables["mirror_states"].append({**row, "state": "MIRRORING", "event": "look", "time_ns": row["time_ns"] + 1})
    return True


@mutation("state_graph", form="refused", trouble=(), scenario="steady")
def obey_a_refused_operation(v: Victim) -> bool:
    """A pause is refused, and yet the partition is PAUSED."""
    v.w.book.now = 64 * S
    target = [{"action": "target", "topic": v.w.b.topic, "partition": 0}]
    admin = v.w.book.name("admin")
    v.w.book.operation(admin, "mirror_pause", target, end="fail", error="INVALID_STATE", cluster="B")
    for row in v.rows("mirror_states", partition=0, event="look"):
        if row["time_ns"] > 64 * S:
            row.update(state="PAUSED", lag=None)
    return True


@mutation("acl_lost", form="local", access=True)
def delete_a_local_rule(v: Victim) -> bool:
    """A DENY rule that exists on B only disappears, though no administrator deleted it."""
    looks = [r for r in v.rows("acls", cluster="B", event="look") if r["time_ns"] > 80 * S]
    row = v.pick([r for r in looks if (r["binding"] or "").startswith("DENY")])
    if row is None:
        return False
    v.tables["acls"] = [r for r in v.tables["acls"] if r is not row]
    return True


@mutation("acl_lost", form="stale", access=True, scenario="steady", trouble=())
def keep_a_removed_rule(v: Victim) -> bool:
    """A mirrored rule that was deleted on A stays on B to the end."""
    gone = [r for r in v.rows("acls", cluster="A", event="delete") if r["binding"] not in v.w.a.acls]
    row = v.pick(gone)
    if row is None:
        return False
    binding = row["binding"]
    seen = [r["time_ns"] for r in v.rows("acls", cluster="B", event="look", binding=binding)]
    if not seen:
        return False
    v.tables["acls"] = [
        r for r in v.tables["acls"] if not (r["cluster"] == "B" and r["binding"] == binding and r["event"] == "delete")
    ]
    looks = sorted({(r["time_ns"], r["look"]) for r in v.rows("acls", cluster="B", event="look")})
    for time_ns, look in looks:
        if time_ns > min(seen) and time_ns not in seen:
            row = {"cluster": "B", "event": "look", "binding": binding, "look": look, "time_ns": time_ns}
            v.w.book.row("acls", **row)
    return any(r["time_ns"] > 80 * S for r in v.rows("acls", cluster="B", event="look", binding=binding))


@mutation("config_reverted", form="retention", access=True, scenario="failover")
def revert_a_retention(v: Victim) -> bool:
    """After the stop B's retention reverts to the old source's, though no administrator set it."""
    looks = v.rows("configs", cluster="B", event="look", name="retention.ms")
    before = [r for r in looks if 58 * S < r["time_ns"] < 80 * S]
    last = [r for r in looks if r["time_ns"] > 80 * S]
    if not before or not last:
        return False
    last[0]["value"] = "86400001"
    return True


@mutation("config_reverted", form="other", access=True, scenario="failover")
def go_on_syncing_configs(v: Victim) -> bool:
    """The mirror changes a topic configuration of B after the stop."""
    v.w.book.now = 66 * S
    row = {"cluster": "B", "event": "alter", "actor": "mirror", "topic": v.w.b.topic}
    v.w.book.row("configs", **row, name="max.message.bytes", value="9")
    return True


@mutation("name_leak")
def tell_a_stranger(v: Victim) -> bool:
    """A principal without rights on mirrors learns a mirror's name from an error message."""
    principal, mirror = f"User:{v.w.book.name('eve')}", v.w.book.name("mirror")
    row = {"cluster": "B", "principal": principal, "surface": "error_text", "mirror": mirror}
    v.w.book.row("mirror_names", **row, entitled=False)
    return True


def _metrics(v: Victim, **looks: list[int]) -> None:
    for i in range(len(looks["memory_bytes"])):
        for name, values in looks.items():
            row = {"cluster": "B", "node": v.w.book.name("mirror-0"), "name": name, "value": values[i]}
            v.w.book.row("metrics", **row, time_ns=(20 + 5 * i) * S)


@mutation("memory", form="bound")
def take_too_much_memory(v: Victim) -> bool:
    """A mirror's memory grows by more than its fetchers may buffer."""
    _metrics(v, fetcher_threads=[2, 2], fetch_response_max_bytes=[50, 50], memory_bytes=[100, 900])
    return True


@mutation("memory", form="growth")
def grow_with_partitions(v: Victim) -> bool:
    """A mirror's memory grows with the number of partitions."""
    _metrics(
        v,
        mirror_partitions=[10, 1_000],
        fetcher_threads=[2, 2],
        fetch_response_max_bytes=[50, 50],
        memory_bytes=[200, 390],
    )
    return True
