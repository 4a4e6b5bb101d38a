"""`failover_refused`: a mirror did not do what an administrator asked of it when it counted.

Proves, by form:
- `refused`: a scenario asked for the stop of a mirror, again and again until its limit, and the mirror refused. The
  destination did not become writable; the sentence has the time for which it was tried and the reason that was stated.
- `timeout`: the mirror did not refuse, and the stop did not end within its limit either.
- `ignored`: a stop was acknowledged, and a partition that was described before and afterwards was not described as
  stopped or being stopped, nor started again, since; or a pause was acknowledged, and 10 s later the mirrored log of
  the destination, to which no client writes, still grew.

In an imported history `refused` is a failed event of function `failover`; a failed `mirror_stop` may be right there.
Cannot see: whether the destination would have been writable anyhow; stops and pauses of a mirror that describes
nothing; whether a refusal was wise.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.base import AnomalyKind, Checker, Severity, anomalies, checked, op_list, sentence
from checkers.views.keys import PARTITION
from checkers.views.mirror_requests import requests, with_states
from checkers.views.tables import Tables

KIND = AnomalyKind(
    name="failover_refused",
    severity=Severity.S3,
    violation="could not be taken over: its mirror did not do what was asked of it",
    section=4,
    what="a stop of a mirror is granted and ends within its limit, also when its source is gone; a stop or a pause "
    "that is acknowledged takes place",
    limitations="mirrors that describe no states; whether the destination was writable anyhow",
    sources=("KIP-1279",),
    requires=("ops",),
    forms=("refused", "timeout", "ignored"),
)
PAUSE_NS: Final = 10_000_000_000
"""How long a mirror may take to pause after it acknowledged that."""
_STOPS: Final = ("mirror_stop", "failover")
_STARTS: Final = ("mirror_start", "mirror_failback", "mirror_resume")
_OBEYED: Final = ("STOPPING", "STOPPED", "PREPARING", "LOG_TRUNCATION", "EPOCH_FENCING")
_NEVER: Final = (1 << 63) - 1
_ABOUT: Final = "on_topic is null or (on_topic = topic and coalesce(on_partition, partition) = partition)"


def check(t: Tables) -> DataFrame | None:
    """One row per request, and per partition for those that were ignored."""
    return checked(t, [_not_granted(t), _not_stopped(t), _not_paused(t)])


def _not_granted(t: Tables) -> DataFrame | None:
    if not t.facts.any(*_STOPS):
        return None
    had_to = F.col("own") | (F.col("f") == "failover")
    rows = requests(t, *_STOPS).where(had_to & ((F.col("type") == "fail") | (F.col("own") & (F.col("type") == "info"))))
    refusals = t.found(rows)
    if refusals is None:
        return None
    rows = with_states(t, refusals, until=F.col("done"))
    tried = F.round((F.col("done") - F.col("begin")) / 1e9, 1)
    refused = F.col("type") == "fail"
    reason = F.coalesce("error_text", F.lit("no reason stated"))
    return anomalies(
        rows,
        KIND.name,
        form=F.when(refused, "refused").otherwise("timeout"),
        partition=None,
        offset=None,
        value=None,
        ops=op_list("op", "done_index"),
        rank=-(F.col("done") - F.col("begin")),
        explain=F.when(
            refused,
            sentence(
                "%s was not made writable: the stop of its mirror was refused, tried for %s s: %s; described then: %s",
                *("cluster", tried, reason, "states"),
            ),
        ).otherwise(
            sentence(
                "%s was not made writable: the stop of its mirror did not end in %s s: %s; described then: %s",
                *("cluster", tried, reason, "states"),
            )
        ),
    )


def _not_stopped(t: Tables) -> DataFrame | None:
    if not (t.has("mirror_states") and t.facts.any(*_STOPS)):
        return None
    granted = t.found(requests(t, *_STOPS).where("type = 'ok'"))
    if granted is None:
        return None
    stops = _until_next(t, granted, *_STARTS)
    seen = t.table("mirror_states").where("state is not null and state != 'UNKNOWN' and partition is not null")
    seen = seen.where("coalesce(event, 'look') = 'look'").select(*PARTITION, "state", F.col("time_ns").alias("seen_ns"))
    around = seen.join(F.broadcast(stops), "cluster").where("seen_ns < begin or (seen_ns > done and seen_ns < until)")
    before, after = F.col("seen_ns") < F.col("begin"), F.col("seen_ns") > F.col("done")
    groups = around.where(_ABOUT).groupBy("op", "done_index", "f", *PARTITION)
    rows = groups.agg(
        F.max_by(F.when(before, F.col("state")), F.when(before, F.col("seen_ns"))).alias("was"),
        F.max(F.when(after, F.col("state").isin(*_OBEYED))).alias("obeyed"),
        F.max_by("state", "seen_ns").alias("state"),
        F.count(F.when(after, 1)).alias("times"),
    )
    rows = rows.where("was is not null and was != 'STOPPED' and times > 0")
    return anomalies(
        rows.where("not obeyed"),
        KIND.name,
        form=F.lit("ignored"),
        offset=None,
        value=None,
        ops=op_list("op", "done_index"),
        explain=sentence(
            "%s of the mirror to %s was acknowledged, and yet %s-%s was never described as stopped: %s, %s times",
            *("f", "cluster", "topic", "partition", "state", "times"),
        ),
    )


def _not_paused(t: Tables) -> DataFrame | None:
    if not (t.has("mirror_states") and t.has("log_ends") and t.facts.any("mirror_pause")):
        return None
    pauses = _until_next(t, requests(t, "mirror_pause").where("type = 'ok'"), *_STOPS, *_STARTS)
    mirrored = t.table("mirror_states").where("partition is not null").select(*PARTITION).distinct()
    ends = t.table("log_ends").where("broker is null or leader is null or broker = leader")
    ends = ends.withColumn("end", F.coalesce("high_watermark", "log_end")).where("end is not null")
    ends = ends.select(*PARTITION, "end", F.col("time_ns").alias("seen_ns"))
    written = t.sends.groupBy(*PARTITION[:2]).agg(F.min("invoke_ns").alias("written_ns"))
    after = ends.join(mirrored, list(PARTITION), "left_semi").join(F.broadcast(pauses), "cluster")
    after = after.where((F.col("seen_ns") > F.col("done") + PAUSE_NS) & (F.col("seen_ns") < F.col("until")))
    after = after.join(written, list(PARTITION[:2]), "left").where("written_ns is null or written_ns >= until")
    rows = (
        after.where(_ABOUT)
        .groupBy("op", "done_index", *PARTITION)
        .agg(F.min_by("end", "seen_ns").alias("first"), F.max_by("end", "seen_ns").alias("last"))
    )
    return anomalies(
        rows.where("last > first"),
        KIND.name,
        form=F.lit("ignored"),
        offset="first",
        value=None,
        ops=op_list("op", "done_index"),
        explain=sentence(
            "the pause of the mirror to %s was acknowledged, and 10 s later %s-%s still grew there, from %s to %s",
            *("cluster", "topic", "partition", "first", "last"),
        ),
    )


def _until_next(t: Tables, rows: DataFrame, *functions: str) -> DataFrame:
    """One row per target of each request: op, done_index, f, cluster, begin, done, on_topic and on_partition (null:
    all), and until (begin of the next request with these functions about the same)."""
    targets = t.table("op_records").where("topic is not null")
    targets = targets.select(
        *(F.col("op_index").alias("op"), F.col("topic").alias("on_topic"), F.col("partition").alias("on_partition"))
    ).distinct()
    others = requests(t, *functions).join(targets.drop("on_partition"), "op", "left")
    others = others.select(
        *(F.col("cluster").alias("there"), F.col("begin").alias("next_ns"), F.col("on_topic").alias("other_topic"))
    )
    later = (F.col("there") == F.col("cluster")) & (F.col("next_ns") >= F.col("done"))
    same = F.col("other_topic").isNull() | F.col("on_topic").isNull() | (F.col("other_topic") == F.col("on_topic"))
    rows = rows.drop("topic").join(targets, "op", "left").join(F.broadcast(others), later & same, "left")
    found = rows.groupBy("op", "done_index", "f", "cluster", "begin", "done", "on_topic", "on_partition")
    return found.agg(F.coalesce(F.min("next_ns"), F.lit(_NEVER)).alias("until"))


CHECKER = Checker(name="failover_refused", kinds=(KIND,), check=check)
