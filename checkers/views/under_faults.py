"""How many records the mirror copied under each fault: a fault under which the mirror was idle tested nothing.

Not a checker: shared by `thin` and the figures. A fault's window begins with its injection and ends AFTER_S after its
healing. The records copied are the growth of the destination's logs meanwhile (without control records), by the
snapshots of their ends that every run takes, whatever the mirror; the growth in a late snapshot is spread evenly over
its time. Without such snapshots it is the records that readers of the destination read for the first time. From the
first write of a client to the destination on, its growth does not count.

Counted are the faults that bit during the load, and for a fault on a cluster the routes from it and to it.
Cannot see: records copied to a destination without snapshots and readers; which records the growth was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.views.keys import PARTITION
from harness.history.ops import Phase

if TYPE_CHECKING:
    from checkers.views.tables import Tables

AFTER_S = 20
"""How long after the healing the mirror's records still count: a process has to start and get its tasks."""
_AFTER_NS = AFTER_S * 10**9
_WINDOW = "fault_id int, cluster string, begin_ns bigint, end_ns bigint, before boolean"


@dataclass(frozen=True, kw_only=True)
class UnderFault:
    """One fault that bit. cluster: where it acted (A, B, mirror, link, …). records, partitions: mirrored in its window.
    before: records mirrored right before it, counted only where a stop of the mirror ended the window early."""

    fault_id: int
    name: str
    cluster: str | None
    records: int
    partitions: int
    before: int = 0

    @property
    def worked(self) -> int:
        """The records that show whether the mirror was active under the fault."""
        return max(self.records, self.before)

    def to_json(self) -> dict[str, Any]:
        """An entry of `carried_under_faults` in results.json."""
        fields = asdict(self)
        return fields if self.before else {key: value for key, value in fields.items() if key != "before"}


@dataclass(frozen=True)
class MirroredUnderFaults:
    """faults: those that bit, in order; partitions: the number of partitions with mirrored records under any of
    them."""

    faults: tuple[UnderFault, ...] = ()
    partitions: int = 0


def carried_under_faults(t: Tables) -> MirroredUnderFaults:
    """See the module. Nothing for imported histories, and for runs without a mirror or without a fault that bit."""
    mirrored = t.meta.test.mirror or t.meta.topic_map
    if t.stored.imported or not mirrored or not t.mirror_pairs or not t.has("faults"):
        return MirroredUnderFaults()
    faults = _bitten(t)
    if not faults:
        return MirroredUnderFaults()
    windows = t.spark.createDataFrame(_windows(t, faults), _WINDOW)
    steps = _steps(t).join(F.broadcast(windows), "cluster")
    steps = steps.where("time_ns > begin_ns and since_ns < end_ns")
    inside = F.least("time_ns", "end_ns") - F.greatest("since_ns", "begin_ns")
    share = F.when(F.col("time_ns") > F.col("since_ns"), inside / (F.col("time_ns") - F.col("since_ns"))).otherwise(1)
    grown = steps.groupBy("fault_id", "before", *PARTITION).agg(F.sum(F.col("grown") * share).alias("n"))
    grown = t.cache(grown.withColumn("n", F.round("n").cast("bigint")).where("n > 0"))
    sums = grown.groupBy("fault_id", "before").agg(F.sum("n").alias("records"), F.count("*").alias("partitions"))
    found = {(row["fault_id"], row["before"]): row for row in sums.collect()}
    under = []
    for fault in faults:
        row, earlier = found.get((fault["fault_id"], False)), found.get((fault["fault_id"], True))
        under.append(
            UnderFault(
                fault_id=fault["fault_id"],
                name=fault["name"],
                cluster=fault["cluster"],
                records=row["records"] if row else 0,
                partitions=row["partitions"] if row else 0,
                before=earlier["records"] if earlier else 0,
            )
        )
    return MirroredUnderFaults(tuple(under), grown.select(*PARTITION).distinct().count())


def _bitten(t: Tables) -> list[dict[str, Any]]:
    """The faults that bit during the load, in order of injection: fault_id, name, cluster, begin_ns, bit_ns, end_ns."""
    loads = [(p.start_ns, p.end_ns) for p in t.meta.phases if p.name == Phase.LOAD]

    def in_load(ns: int) -> bool:
        return not loads or any(start <= ns and (end is None or ns <= end) for start, end in loads)

    found: dict[int, dict[str, Any]] = {}
    columns = ["fault_id", "name", "cluster", "action", "time_ns", "ok"]
    for row in sorted(t.stored.run.read_table("faults", columns).to_pylist(), key=lambda row: row["time_ns"] or 0):
        if row["fault_id"] is None or row["fault_id"] < 0 or row["time_ns"] is None:
            continue
        fault = found.setdefault(row["fault_id"], {"bit_ns": None, "cluster": None, "begin_ns": row["time_ns"]})
        fault |= {key: row[key] for key in ("fault_id", "name", "cluster") if row[key] is not None}
        if row["action"] == "bit" and row["ok"] is not False and fault["bit_ns"] is None:
            fault["bit_ns"] = row["time_ns"]
        if row["action"] in ("bit", "heal"):
            fault["end_ns"] = row["time_ns"]
    bitten = [fault for fault in found.values() if fault["bit_ns"] is not None and in_load(fault["bit_ns"])]
    return sorted(bitten, key=lambda fault: (fault["begin_ns"], fault["fault_id"]))


def _windows(t: Tables, faults: Sequence[dict[str, Any]]) -> list[tuple[int, str, int, int, bool]]:
    """One window for each fault and each of its destinations; a second one, before it, where the mirror was stopped
    within the first."""
    stops = _firsts(t.table("mirror_states").where("state = 'STOPPED'")) if t.has("mirror_states") else {}
    rows = []
    for fault in faults:
        mine = [d for s, d in t.mirror_pairs if fault["cluster"] in (s, d)]
        for destination in mine or [d for _, d in t.mirror_pairs]:
            begin, end = fault["begin_ns"], fault["end_ns"] + _AFTER_NS
            rows.append((fault["fault_id"], destination, begin, end, False))
            if begin < stops.get(destination, end) < end:
                rows.append((fault["fault_id"], destination, begin - _AFTER_NS, begin, True))
    return rows


def _steps(t: Tables) -> DataFrame:
    """How the destinations' logs grew by the mirror: PARTITION, since_ns, time_ns, grown (data records)."""
    destinations = [d for _, d in t.mirror_pairs]
    ends = t.table("log_ends").where(F.col("cluster").isin(*destinations) & F.col("partition").isNotNull())
    ends = ends.where("broker is null or leader is null or broker = leader")
    ends = ends.withColumn("end", F.coalesce("high_watermark", "log_end")).where("end is not null")
    several = ends.groupBy("cluster").agg(F.countDistinct("time_ns").alias("n")).where("n > 1").collect()
    with_snapshots = [row["cluster"] for row in several]
    order = Window.partitionBy(*PARTITION).orderBy("time_ns")
    steps = (
        ends.groupBy(*PARTITION, "time_ns")
        .agg(F.max("end").alias("high"))
        .withColumns({"since_ns": F.lag("time_ns").over(order), "low": F.lag("high").over(order)})
    )
    steps = steps.where((F.col("high") > F.col("low")) & F.col("cluster").isin(*with_snapshots))
    if t.has("records"):
        control = t.truth_log.where("control_type is not null")
        control = control.select(*(F.col(c).alias(f"c_{c}") for c in PARTITION), "offset")
        within = F.expr("offset >= low and offset < high")
        for c in PARTITION:
            within &= F.col(c) == F.col(f"c_{c}")
        counted = steps.join(control, within, "left").groupBy(*steps.columns)
        steps = counted.agg(F.count("offset").alias("markers"))
    else:
        steps = steps.withColumn("markers", F.lit(0))
    grown = (F.col("high") - F.col("low") - F.col("markers")).cast("double").alias("grown")
    found = steps.select(*PARTITION, "since_ns", "time_ns", grown)
    unseen = [d for d in destinations if d not in with_snapshots]
    if unseen:
        polled = t.polled.where(F.col("cluster").isin(*unseen)).groupBy(*PARTITION, "first_ns")
        read = polled.agg(F.count("*").cast("double").alias("grown"))
        times = (F.col("first_ns").alias("since_ns"), F.col("first_ns").alias("time_ns"))
        found = found.unionByName(read.select(*PARTITION, *times, "grown"))
    if t.meta.topic_map:
        found = found.where(t.canonical().isin(*t.meta.topic_map))
    own = _firsts(t.table("ops").where("f in ('send', 'txn') and type = 'invoke'"))
    for destination in destinations:
        if destination in own:
            found = found.where((F.col("cluster") != destination) | (F.col("time_ns") <= own[destination]))
    return found


def _firsts(rows: DataFrame) -> dict[str, int]:
    """Cluster → time of its first row."""
    found = rows.where("cluster is not null").groupBy("cluster").agg(F.min("time_ns").alias("at")).collect()
    return {row["cluster"]: row["at"] for row in found}
