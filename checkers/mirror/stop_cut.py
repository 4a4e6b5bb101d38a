"""`stop_cut`: the state in which a stop leaves the destination's log, by the design of the mirror.

For every design: the log reaches the recorded cut, nothing of the source is at or above it, and no local write is below
it. Where the log is truncated to its last stable offset (capability `truncating_stop`), no transaction is open below
the cut; elsewhere open transactions are closed at the stop: each one gets exactly one ABORT at or above the cut and
before the first local write. A producer id reset comes after those markers and before the first local write, once;
designs with the capability `pid_reset` demand it.

Cannot see: what an in-sync replica held at the very moment of the stop (a snapshot may come later); a reset that stock
brokers store and ignore (that is a capability); stops of mirrors that do not preserve offsets.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Logs, Severity, anomalies, sentence, union
from checkers.views.mirrored_values import bounds, mirrored_values
from checkers.views.mirroring import PAIR, capable, designed, keeps_offsets
from checkers.views.tables import Tables
from checkers.views.txn_batches import producer_key, txn_batches

KIND = AnomalyKind(
    name="stop_cut",
    severity=Severity.S1,
    violation="was not cut at the stop as its design says",
    section=2,
    what="at the stop the destination ends at the cut, open transactions are closed once, then ids are reset",
    limitations="the time between the stop and the next snapshot; whether brokers honour the reset",
    sources=("KIP-1279",),
    requires=("batches", "records", "log_ends", "mirror_states"),
    logs=Logs.EVERY,
)


def check(t: Tables) -> DataFrame | None:
    """Anomalies on the destination; None where no offset-preserving mirror was stopped."""
    where, values = bounds(t), mirrored_values(t)
    if where is None or values is None or not keeps_offsets(t):
        return None
    stopped = where.where("stopped and b_end is not null")
    if stopped.isEmpty():
        return None
    stopped = stopped.join(_marker_ends(t), list(PAIR), "left")
    # Without a recorded cut: the end of the source's records and markers.
    recorded = F.coalesce("cut_destination", "cut_source")
    cut = F.coalesce(recorded, F.greatest("bound", "marker_end"))
    stopped = stopped.withColumns({"cut": cut, "recorded": recorded.isNotNull()})
    local = t.sends.where("outcome != 'failed'")  # records of aborted transactions are in the log, too
    local = local.select(F.col("cluster").alias("destination"), *PAIR[2:], "value").distinct()
    log = t.truth_log.withColumnRenamed("cluster", "destination").join(
        F.broadcast(stopped.select(*PAIR)), list(PAIR[1:])
    )
    own = log.where("control_type is null").join(local, [*PAIR[1:], "value"], "left_semi")
    first_local = own.groupBy(*PAIR).agg(
        F.min("offset").alias("first_local"), F.min_by("value", "offset").alias("local")
    )
    stopped = t.cache(stopped.join(first_local, list(PAIR), "left"))
    batches = txn_batches(t).withColumnRenamed("cluster", "destination").join(F.broadcast(stopped), list(PAIR[1:]))
    open_ = t.cache(_open(batches))
    parts = [_ends(stopped), _mirrored_above(values, local, stopped)]
    if not t.is_empty(open_):
        parts.append(_transactions(t, batches, open_, stopped))
    parts.append(_resets(t, log, open_, stopped))
    if capable(t, "cut_by_epoch"):
        parts.append(_epochs(t, stopped))
    return union([_row(part) for part in parts])


def _marker_ends(t: Tables) -> DataFrame:
    """The end of the markers that both logs hold: PAIR, marker_end."""
    marks = t.truth_log.where("control_type in ('COMMIT', 'ABORT')")
    marks = marks.select("cluster", *PAIR[2:], "offset", "control_type", "producer_id")
    own = marks.withColumnRenamed("cluster", "source")
    there = marks.withColumnRenamed("cluster", "destination")
    both = own.join(there, [*PAIR[2:], "offset", "control_type", "producer_id"])
    return both.groupBy(*PAIR).agg((F.max("offset") + 1).alias("marker_end"))


def _row(rows: DataFrame) -> DataFrame:
    return anomalies(
        rows,
        "stop_cut",
        cluster="destination",
        topic="destination_topic",
        rank=F.col("offset"),
        explain=sentence(
            "%s-%s on %s, stopped at %s: %s", "destination_topic", "partition", "destination", "cut", "what"
        ),
    )


_COLUMNS = ("destination", "destination_topic", "partition", "cut", "offset", "value", "what")


def _ends(stopped: DataFrame) -> DataFrame:
    none = F.lit(None).cast("string")
    short = stopped.where("recorded and b_end < cut").withColumns(
        {"offset": F.col("b_end"), "value": none, "what": sentence("the log ends at %s, below the cut", "b_end")}
    )
    early = stopped.where("recorded and first_local < cut").withColumns(
        {
            "offset": F.col("first_local"),
            "value": F.col("local"),
            "what": sentence("the local write %s is below the cut, at %s", "local", "first_local"),
        }
    )
    return short.select(*_COLUMNS).unionByName(early.select(*_COLUMNS))


def _mirrored_above(values: DataFrame, local: DataFrame, stopped: DataFrame) -> DataFrame:
    rows = values.where("a_all > 0 and b_all > 0").join(F.broadcast(stopped.where("recorded")), list(PAIR))
    rows = rows.join(local, [*PAIR[1:], "value"], "left_anti")  # a failback has mirrored these to the source
    rows = rows.where("b_last >= cut").withColumns(
        {
            "offset": F.col("b_last"),
            "what": sentence("%s of the source is at %s, at or above the cut", "value", "b_last"),
        }
    )
    return rows.select(*_COLUMNS)


def _epochs(t: Tables, stopped: DataFrame) -> DataFrame:
    """Batches at or above a recorded cut whose leader epoch is not above all those below it."""
    where = F.broadcast(stopped.where("recorded").select(*PAIR, "destination_topic", "cut"))
    truth = F.broadcast(t.truth.select("cluster", "topic", "partition", "broker"))
    log = t.log_batches.join(truth, ["cluster", "topic", "partition", "broker"])
    log = log.withColumnRenamed("cluster", "destination").join(where, list(PAIR[1:]))
    below = F.max(F.when(F.col("base_offset") < F.col("cut"), F.col("leader_epoch")))
    last = log.groupBy(*PAIR).agg(below.alias("last_epoch"))
    rows = log.where("base_offset >= cut").join(F.broadcast(last), list(PAIR)).where("leader_epoch <= last_epoch")
    first = rows.groupBy(*PAIR, "destination_topic", "cut", "last_epoch").agg(
        F.min("base_offset").alias("offset"), F.min_by("leader_epoch", "base_offset").alias("epoch")
    )
    what = sentence(
        "the batch at %s has leader epoch %s, not above %s of those below the cut", "offset", "epoch", "last_epoch"
    )
    none = F.lit(None).cast("string")
    return first.withColumns({"what": what, "value": none}).select(*_COLUMNS)


def _open(batches: DataFrame) -> DataFrame:
    """Transactions with data below the cut and no marker below it: PAIR, producer, offset."""
    data = batches.where("not control and base_offset < cut and (end_offset is null or end_offset >= cut)")
    return data.groupBy(*PAIR, "producer").agg(F.min("base_offset").alias("offset"))


def _transactions(t: Tables, batches: DataFrame, open_: DataFrame, stopped: DataFrame) -> DataFrame:
    """Open transactions, judged by the markers that they got."""
    after = batches.where("base_offset >= cut")
    after = after.select(*PAIR, "producer", "base_offset", "control", "control_type", "first_local")
    first_data = after.where("not control").groupBy(*PAIR, "producer").agg(F.min("base_offset").alias("next_data"))
    marks = after.where("control").join(first_data, [*PAIR, "producer"], "left")
    marks = marks.where("next_data is null or base_offset < next_data")
    # After local writes a local producer may have the same id, with data that looks mirrored.
    marks = marks.where("first_local is null or base_offset < first_local")
    counts = marks.groupBy(*PAIR, "producer").agg(
        F.count(F.when(F.col("control_type") == "ABORT", 1)).alias("aborts"), F.count("*").alias("markers")
    )
    rows = open_.join(counts, [*PAIR, "producer"], "left").fillna(0, ["aborts", "markers"])
    if designed(t, "truncating_stop"):
        rows = rows.withColumn("what", sentence("the transaction of producer %s is open below the cut", "producer"))
    else:
        rows = rows.where("aborts != 1 or markers != 1").withColumn(
            "what",
            sentence(
                "the transaction of producer %s that was open has %s ABORT and %s markers in all above the cut",
                *("producer", "aborts", "markers"),
            ),
        )
    rows = rows.join(F.broadcast(stopped), list(PAIR)).withColumn("value", F.lit(None).cast("string"))
    return rows.select(*_COLUMNS)


def _resets(t: Tables, log: DataFrame, open_: DataFrame, stopped: DataFrame) -> DataFrame:
    """Producer id resets above the cut: how many before the first local write, and whether a marker follows them that
    ends a transaction of the source (a local one may be aborted without a record in the log)."""
    control = log.join(F.broadcast(stopped.select(*PAIR, "cut", "first_local")), list(PAIR))
    control = control.where("offset >= cut and control_type is not null and offset < coalesce(first_local, log_end)")
    known = open_.select(*PAIR, "producer", F.lit(True).alias("was_open"))
    control = control.withColumn("producer", producer_key()).join(F.broadcast(known), [*PAIR, "producer"], "left")
    reset, marker = F.col("control_type") == "PID_RESET", (F.col("control_type") == "ABORT") & F.col("was_open")
    found = control.groupBy(*PAIR).agg(
        F.count(F.when(reset, 1)).alias("resets"),
        F.min(F.when(reset, F.col("offset"))).alias("reset"),
        F.max(F.when(marker, F.col("offset"))).alias("marker"),
    )
    rows = stopped.join(found, list(PAIR), "left").fillna(0, ["resets"])
    demanded = designed(t, "pid_reset") and t.meta.test.mirror_options.get("pid_reset_record", "on") == "on"
    missing = F.lit(demanded) & F.col("first_local").isNotNull() & (F.col("resets") == 0)
    what = (
        F.when(F.col("resets") > 1, sentence("%s producer id resets, not one", "resets"))
        .when(F.col("marker") > F.col("reset"), sentence("an ABORT at %s follows the producer id reset", "marker"))
        .when(missing, sentence("no producer id reset before the first local write at %s", "first_local"))
    )
    rows = rows.withColumns(
        {"what": what, "offset": F.coalesce("reset", "first_local"), "value": F.lit(None).cast("string")}
    )
    return rows.where("what is not null").select(*_COLUMNS)


CHECKER = Checker(name="stop_cut", kinds=(KIND,), check=check)
