"""`thin`: too little happened for a clean result to mean anything.

Proves: the run stayed under the floor that its workload states in run.json (`ok_sends`, `ok_polls`,
`polled_records_on_destination`, `faults_bit`): then the verdict is unknown at best. Each form counts one figure. Form
`nemesis`: a nemesis of the test never bit, whatever others did.

Cannot see: load that was enough in number and poor in kind; a history without a floor (an imported one).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from checkers.base import Checker, Kind, Severity, anomalies, sentence, union
from checkers.tables import Tables

THIN = Kind(
    name="thin",
    severity=Severity.UNKNOWN,
    section=1,
    what="the load, and the faults that bit, reach the workload's floor, and each nemesis bit at least once",
    blind="load that is enough in number and poor in kind",
    sources=("Jepsen: checker stats",),
    requires=("ops",),
    forms=("ok_sends", "ok_polls", "polled_records_on_destination", "faults_bit", "nemesis"),
)


def find(t: Tables) -> DataFrame | None:
    """One row per figure that is below its floor."""
    frames = [_below(form, figure, t.meta.floor.get(form)) for form, figure in _figures(t).items()]
    return union([*frames, _idle(t)])


def _idle(t: Tables) -> DataFrame | None:
    """One row per nemesis of a run of ours of which no fault was seen to bite."""
    if t.stored.imported:
        return None
    names = {str(fault["nemesis"]) for fault in t.meta.schedule if "nemesis" in fault}
    names |= {name.partition(":")[0] for name in t.meta.test.nemeses}
    if not names:
        return None
    asked = t.spark.createDataFrame([(name,) for name in sorted(names)], "name string")
    bit = t.table("faults").where("action = 'bit' and coalesce(ok, true)").select("name").distinct()
    return _row(
        asked.join(bit, "name", "left_anti"), "nemesis", sentence("no fault of nemesis %s was seen to bite", "name")
    )


def _figures(t: Tables) -> dict[str, DataFrame]:
    ok = t.table("ops").where("type = 'ok' and coalesce(phase, '') != 'final'")
    sends = ok.where("f in ('send', 'txn')").agg(F.count("*").alias("n"))
    polled = t.table("op_records").where("action = 'poll'").select("op_index")
    polls = ok.where("f in ('poll', 'txn')").select(F.col("index").alias("op_index"), "cluster")
    with_records = polled.distinct().join(polls, "op_index").agg(F.count("*").alias("n"))
    # Final reads count here: a mirror that was down during most of the load carried its records afterwards.
    everywhere = t.table("ops").where("type = 'ok' and f in ('poll', 'txn') and cluster != 'A'")
    there = polled.join(everywhere.select(F.col("index").alias("op_index")), "op_index").agg(F.count("*").alias("n"))
    bit = t.table("faults").where("action = 'bit' and coalesce(ok, true)").agg(F.countDistinct("fault_id").alias("n"))
    return {"ok_sends": sends, "ok_polls": with_records, "polled_records_on_destination": there, "faults_bit": bit}


def _below(form: str, figure: DataFrame, floor: object) -> DataFrame | None:
    if not isinstance(floor, int | float) or floor <= 0:
        return None
    words = {
        "ok_sends": "sends succeeded",
        "ok_polls": "polls brought records",
        "polled_records_on_destination": "records were read on the destination",
        "faults_bit": "faults were seen to bite",
    }[form]
    return _row(figure.where(F.col("n") < floor), form, sentence(f"only %s {words}, the floor is {floor:g}", "n"))


def _row(rows: DataFrame, form: str, explain: Column) -> DataFrame:
    """What a run as a whole lacks: no cluster, place or value is named."""
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


CHECKER = Checker(name="thin", kinds=(THIN,), find=find)
