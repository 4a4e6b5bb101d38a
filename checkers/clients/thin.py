"""`thin`: too little happened for a clean result to mean anything.

Proves: the run stayed under the floor that its workload states in run.json (`ok_sends`, `ok_polls`,
`polled_records_on_destination`, `faults_bit`): then the verdict is unknown at best. Each form counts one figure; reads
on the destination are those under load, since final reads say nothing about a mirror that was down meanwhile.
Form `nemesis`: a nemesis of the test, as requested, never took effect ("bit"), whatever others did: `broker-kill:A` and
`broker-kill:B` are two. `unclean-election/elr` alone is always unknown: it shows that Kafka elects an eligible
replica and loses nothing, so it never bites; combine it with another nemesis, or do not expect a verdict.
Form `idle_mirror`: the mirror was idle under a fault: fewer than `carried_under_fault` records (by default 1) were
mirrored while it was active or within 20 s after its healing (see `under_faults`). Form `idle_partitions`: under all
faults together fewer than `partitions_under_faults` partitions got a record.

Cannot see: load that was sufficient in number but not in kind; a history without a floor (an imported one).
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, sentence, union
from checkers.views.tables import Tables
from checkers.views.under_faults import AFTER_S

THIN = AnomalyKind(
    name="thin",
    severity=Severity.UNKNOWN,
    section=1,
    what="the load, the faults that bit and the records mirrored under each reach the floor, and each nemesis bit",
    limitations="load that is sufficient in number but not in kind",
    sources=("Jepsen: checker stats",),
    requires=("ops",),
    forms=(
        *("ok_sends", "ok_polls", "polled_records_on_destination", "faults_bit", "nemesis"),
        *("idle_mirror", "idle_partitions"),
    ),
)


def check(t: Tables) -> DataFrame | None:
    """One row per figure that is below its floor, per nemesis that never bit, per fault under which the mirror was
    idle."""
    frames = [_below(form, figure, t.meta.floor.get(form)) for form, figure in _figures(t).items()]
    return union([*frames, _missing(t), _idle(t), _idle_partitions(t)])


def _missing(t: Tables) -> DataFrame | None:
    """One row per nemesis of a Shatterproof run none of whose faults was seen to bite."""
    if t.stored.imported:
        return None
    drawn = {fault["fault_id"]: fault for fault in t.meta.schedule if "fault_id" in fault}
    rows = t.stored.run.read_table("faults", ["fault_id", "name", "cluster", "action", "ok"]).to_pylist()
    bit = [row for row in rows if row["action"] == "bit" and row["ok"] is not False]
    seen = [{**row, **drawn.get(row["fault_id"], {})} for row in bit]
    asked = {text: _named(text) for text in t.meta.test.nemeses}
    named = {wanted["name"] for wanted in asked.values()}
    moments = [(str(f["nemesis"]), str(f["at_step"])) for f in t.meta.schedule if f.get("at_step") and "nemesis" in f]
    asked |= {f"{name} at moment {step}": {"name": name, "at_step": step} for name, step in moments}
    asked |= {
        name: {"name": name}
        for name in (str(f.get("nemesis", "")) for f in t.meta.schedule if not f.get("at_step"))
        if name not in named
    }
    asked.pop("", None)
    names = [(text,) for text, wanted in sorted(asked.items()) if not any(_fits(fault, wanted) for fault in seen)]
    if not names:
        return None
    never = t.spark.createDataFrame(names, "name string")
    return _row(never, "nemesis", sentence("no fault of nemesis %s was seen to bite", "name"))


def _named(text: str) -> dict[str, str]:
    """`NAME[:CLUSTER[/ROLE]][+PARAMETER=VALUE …][@MOMENT[..END]]` → the attributes that a fault of it must have."""
    text, _, moment = text.partition("@")
    head, *fixed = text.split("+")
    name, _, place = head.partition(":")
    cluster, _, role = place.partition("/")
    wanted = {"name": name, "cluster": cluster, "role": role, **dict(one.split("=", 1) for one in fixed if "=" in one)}
    wanted["at_step"] = moment.partition("..")[0]
    return {key: value for key, value in wanted.items() if value}


def _fits(fault: dict[str, Any], named: dict[str, str]) -> bool:
    """fault: a row of `faults` with its drawn parameters. Unrecorded parameters count as matching."""
    params = fault.get("params")
    own = params if isinstance(params, dict) else {}
    known = {**own, **{key: fault[key] for key in ("name", "cluster", "role") if fault.get(key) is not None}}
    if "link" in own:  # a fault on a link is requested by the cluster at its far end
        known["cluster"] = own["link"]
    step = str(fault.get("at_step") or "")
    if named.get("at_step", "") not in (step, step.split(".")[0]):
        return False
    return all(str(known.get(key, value)) == value for key, value in named.items() if key != "at_step")


def _idle(t: Tables) -> DataFrame | None:
    """One row per fault under which the mirror copied fewer records than the floor."""
    floor = int(t.meta.floor.get("carried_under_fault", 1))
    idle = [f for f in t.carried_under_faults.faults if f.worked < floor]
    if not idle:
        return None
    rows = [(f.records, f"{f.fault_id} ({f.name}{f' on {f.cluster}' if f.cluster else ''})") for f in idle]
    found = t.spark.createDataFrame(rows, "n bigint, fault string")
    words = (
        f"the mirror copied only %s records while fault %s was active and {AFTER_S} s after it, the floor is {floor}"
    )
    return _row(found, "idle_mirror", sentence(words, "n", "fault"))


def _idle_partitions(t: Tables) -> DataFrame | None:
    floor, mirrored = t.meta.floor.get("partitions_under_faults", 0), t.carried_under_faults
    if not mirrored.faults or mirrored.partitions >= floor:
        return None
    found = t.spark.createDataFrame([(mirrored.partitions,)], "n bigint")
    words = f"the mirror copied records of only %s partitions under faults, the floor is {floor}"
    return _row(found, "idle_partitions", sentence(words, "n"))


def _figures(t: Tables) -> dict[str, DataFrame]:
    ok = t.table("ops").where("type = 'ok' and coalesce(phase, '') != 'final'")
    sends = ok.where("f in ('send', 'txn')").agg(F.count("*").alias("n"))
    polled = t.table("op_records").where("action = 'poll'").select("op_index")
    polls = ok.where("f in ('poll', 'txn')").select(F.col("index").alias("op_index"), "cluster")
    under_load = ok.where("coalesce(phase, 'load') in ('load', 'heal')").select(F.col("index").alias("op_index"))
    with_records = polled.distinct().join(polls, "op_index").agg(F.count("*").alias("n"))
    # Clients write to the destination only after the load; what they read there then did not come from the mirror.
    elsewhere = polls.where("cluster != 'A'").join(under_load, "op_index", "left_semi")
    there = polled.join(elsewhere, "op_index").agg(F.count("*").alias("n"))
    bit = t.table("faults").where("action = 'bit' and coalesce(ok, true)").agg(F.countDistinct("fault_id").alias("n"))
    return {"ok_sends": sends, "ok_polls": with_records, "polled_records_on_destination": there, "faults_bit": bit}


def _below(form: str, figure: DataFrame, floor: object) -> DataFrame | None:
    if not isinstance(floor, int | float) or floor <= 0:
        return None
    words = {
        "ok_sends": "sends succeeded",
        "ok_polls": "polls brought records",
        "polled_records_on_destination": "records were read on the destination under load",
        "faults_bit": "faults were seen to bite",
    }[form]
    return _row(figure.where(F.col("n") < floor), form, sentence(f"only %s {words}, the floor is {floor:g}", "n"))


def _row(rows: DataFrame, form: str, explain: Column) -> DataFrame:
    """A row about the run as a whole: without cluster, place or value."""
    return anomalies(
        rows,
        "thin",
        form=F.lit(form),
        cluster=None,
        topic=None,
        partition=None,
        offset=None,
        value=None,
        explain=explain,
    )


CHECKER = Checker(name="thin", kinds=(THIN,), check=check)
