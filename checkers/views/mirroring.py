"""Facts about the mirror: its capabilities, the partitions it had to mirror, and how far it got.

Not a checker: shared by the checkers of sections 2 and 3. A *pair* is (source, destination), two cluster letters;
a partition of a pair is named by the topic's name on A (`origin_topic`) and its number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from checkers.views import topic_names
from checkers.views.mirror_requests import requests
from harness.core import contracts
from harness.history.ops import Phase

if TYPE_CHECKING:
    from checkers.views.tables import Tables

PAIR = ("source", "destination", "origin_topic", "partition")
"""Key columns of a mirrored partition."""

NEVER = (1 << 63) - 1
_NOT_GOING_ON = ("STOPPED", "STOPPING", "PAUSED", "PAUSING", "FAILED")


def capable(t: Tables, capability: str) -> bool:
    """Whether the mirror has a capability: as the run states it, else as mirrors of the contract that is judged."""
    stated = t.meta.capabilities.get(capability)
    return stated.yes if stated is not None else _promised(t.contract or t.meta.test.contract, capability)


def designed(t: Tables, capability: str) -> bool:
    """Whether the mirror's design has a capability: by the contract of the run if the run had a design, else by the one
    that is judged."""
    own = (t.meta.test.contract or "").split("+")[0] if t.meta.test.design else ""
    return _promised(own if own in contracts.names() else t.contract or t.meta.test.contract, capability)


def _promised(contract: str | None, capability: str) -> bool:
    return capability in contracts.load(contract or contracts.DEFAULT).capabilities


def keeps_offsets(t: Tables) -> bool:
    """Whether the mirror promises equal offsets and batches: by its probed capability, else by the contract."""
    return capable(t, "offset_identity")


def mirrors_aborted(t: Tables) -> bool:
    """Whether aborted records are mirrored too, so that they must be on the destination."""
    return capable(t, "aborted_data")


def own_transactions(t: Tables) -> frozenset[str]:
    """Letters of the destinations on which the mirror writes in transactions of its own, which may be aborted and their
    records written again, whatever the clients of the source do."""
    if not capable(t, "own_transactions"):
        return frozenset()
    return frozenset(destination for _, destination in t.mirror_pairs)


def keeps_producer_ids(t: Tables) -> bool:
    """Whether batches keep their producer ids (then their CRC too)."""
    return t.meta.test.mirror_options.get("producer_ids", "verbatim") in ("verbatim", "reserved_block")


def settled(t: Tables) -> bool:
    """Whether the run waited, after healing, for the mirror to catch up: then everything had to arrive."""
    names = {phase.name for phase in t.meta.phases}
    return not t.stored.imported and bool(names & {Phase.SETTLE, Phase.FINAL, Phase.EVIDENCE})


def unclean_clusters(t: Tables) -> frozenset[str]:
    """Letters of the clusters on which an unclean election was forced; all letters where a fault names none."""
    if not t.has("faults"):
        return frozenset()
    rows = t.table("faults").where("lower(name) like '%unclean%' and action in ('inject', 'bit')")
    found = {r[0] for r in rows.select("cluster").distinct().collect()}
    every = {letter for pair in t.mirror_pairs for letter in pair}
    return frozenset(every if found - every else found)


def compacted_on(t: Tables, *clusters: str) -> list[str]:
    """Topics (names on A) that are compacted on any of these clusters."""
    if t.compacted is None:
        return []
    rows = t.compacted.where(F.col("cluster").isin(*clusters)).select(t.canonical().alias("origin")).distinct()
    return sorted(r[0] for r in rows.collect())


def states(t: Tables) -> DataFrame:
    """The final state of the mirror of each partition: cluster (destination), origin_topic, partition, last_state,
    cut_source, cut_destination, cut_ns (of its last stop; null unless it is stopped; the cuts of all stops:
    `mirror_starts`), lag0_ns (time of the newest snapshot in which a running mirror reported lag 0), lag0_source (the
    source offset that it reported then)."""
    rows = t.table("mirror_states").where("state is not null").withColumn("origin_topic", t.canonical())
    newest = Window.partitionBy("cluster", "origin_topic", "partition").orderBy("time_ns")
    newest = newest.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    stop = F.col("state") == "STOPPED"
    rows = rows.withColumn("last_state", F.last("state").over(newest))
    going = F.max(F.when(~F.col("state").isin("STOPPED", "UNKNOWN"), F.col("time_ns"))).over(newest)
    rows = rows.withColumn("going_ns", F.coalesce(going, F.lit(-1)))
    ended = stop & (F.col("last_state") == "STOPPED") & (F.col("time_ns") >= F.col("going_ns"))
    cut = F.max_by(F.struct("source_offset", "destination_offset"), F.when(ended, F.col("time_ns")))
    running = F.col("state").isin("MIRRORING", "UNKNOWN") & (F.col("lag") == 0)
    found = rows.groupBy("cluster", "origin_topic", "partition").agg(
        F.first("last_state").alias("last_state"),
        F.when(F.max(ended), cut).alias("cut"),
        F.min(F.when(ended, F.col("time_ns"))).alias("cut_ns"),
        F.max(F.when(running, F.struct("time_ns", "source_offset"))).alias("lag0"),
    )
    parts = {"cut_source": "cut.source_offset", "cut_destination": "cut.destination_offset"}
    parts |= {"lag0_ns": "lag0.time_ns", "lag0_source": "lag0.source_offset"}
    return found.withColumns({name: F.col(part) for name, part in parts.items()}).drop("cut", "lag0")


def scopes(t: Tables) -> DataFrame | None:
    """Every partition to be judged, one row each: PAIR, source_topic, destination_topic, a_start, a_end,
    b_start, b_end (b_*: null when the topic is not there at all), from_log (the source's log is known, not only its
    acknowledged sends), and the columns of `states`; stopped; all_due (everything had to arrive: not where a scenario
    asked for a stop in vain, since it then waited for nothing).

    Not included: topics that the mirror was not asked to mirror, and partitions whose log on the destination was not
    captured. None without a pair.
    """
    return t.once("scopes", _scopes)


def _scopes(t: Tables) -> DataFrame | None:
    parts = [_pair_scopes(t, source, destination) for source, destination in t.mirror_pairs]
    if not parts:
        return None
    found = parts[0]
    for part in parts[1:]:
        found = found.unionByName(part)
    going = ~F.coalesce("last_state", F.lit("")).isin(*_NOT_GOING_ON)
    in_vain = requests(t, "mirror_stop").where("own and type in ('fail', 'info')").select("cluster").distinct()
    going &= ~F.col("destination").isin(*(row[0] for row in in_vain.collect()))
    return found.withColumns(
        {
            "stopped": F.coalesce(F.col("last_state") == "STOPPED", F.lit(False)),
            "all_due": going & F.col("from_log") & F.lit(settled(t)),
        }
    )


def _pair_scopes(t: Tables, source: str, destination: str) -> DataFrame:
    place = ("origin_topic", "partition")
    ends = t.truth.where("log_start is not null")
    a = ends.where(F.col("cluster") == source).select(
        *place,
        F.col("topic").alias("source_topic"),
        F.col("log_start").alias("a_start"),
        F.col("log_end").alias("a_end"),
    )
    sent = t.sends.where((F.col("cluster") == source) & F.col("outcome").isin("acked", "committed"))
    sent = sent.where("offset is not null and partition is not null").select(*place, F.col("topic").alias("sent_topic"))
    a = a.withColumn("from_log", F.lit(True)).join(sent.distinct(), list(place), "full")
    a = a.withColumns(
        {
            "source_topic": F.coalesce("source_topic", "sent_topic"),
            "from_log": F.coalesce("from_log", F.lit(False)),
        }
    ).drop("sent_topic")
    b = ends.where(F.col("cluster") == destination).select(
        *place,
        F.col("topic").alias("destination_topic"),
        F.col("log_start").alias("b_start"),
        F.col("log_end").alias("b_end"),
    )
    observed = (
        t.table("log_ends")
        .where(F.col("cluster") == destination)
        .select(t.canonical().alias("origin_topic"), "partition")
    )
    observed = observed.where("partition is not null")
    hidden = [(gap.cluster, gap.topic, gap.partition) for gap in t.gaps if gap.cluster == destination]
    if hidden:
        unseen = t.spark.createDataFrame(hidden, "cluster string, topic string, partition int")
        observed = observed.unionByName(unseen.select(t.canonical().alias("origin_topic"), "partition"))
    observed = observed.distinct().withColumn("observed", F.lit(True))
    both = a.join(b, list(place), "left").join(observed, list(place), "left")
    absent = F.col("b_end").isNull()
    # In a settled run a topic that no broker of the destination knows was never mirrored; else its log is unknown.
    both = both.where(~absent | F.col("observed").isNull()) if settled(t) else both.where(~absent)
    mirrored = t.meta.topic_map if destination == "B" else t.meta.topic_maps.get(destination, t.meta.topic_map)
    if mirrored:
        both = both.where(F.col("origin_topic").isin(*mirrored))
    named = F.coalesce("destination_topic", topic_names.on_cluster(t.meta, F.lit(destination)))
    both = both.withColumns(
        {"source": F.lit(source), "destination": F.lit(destination), "destination_topic": named}
    ).drop("observed")
    own = states(t).where(F.col("cluster") == destination).drop("cluster")
    return both.join(F.broadcast(own), list(place), "left")
