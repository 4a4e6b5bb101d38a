"""Shared, cached views over a run's stored tables: the input of every checker.

All are DataFrame expressions and sparse in offsets: a log that starts at 10^12 costs as much as one that starts at 0.
Each view is built at most once per run. Clusters are letters; `topic` is always the name on that cluster,
and `origin_topic` the name on A (`canonical`), so that two clusters can be joined.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from checkers.base import ANOMALY_COLUMNS
from checkers.eras import Failbacks, Incarnations
from checkers.spark.scratch import Scratch
from checkers.spark.session import SMALL_ROWS
from checkers.spark.stored import Stored, open_stored
from checkers.views import (
    compaction,
    completeness,
    failbacks,
    history,
    incarnations,
    partitions,
    prefiltered,
    recreations,
    replica_logs,
    topic_ids,
    topic_names,
    under_faults,
    value_outcomes,
)
from checkers.views.cache import Locks, built_once, view
from checkers.views.history_facts import Facts, learn
from checkers.views.keys import PARTITION
from harness.core.internal_topics import INTERNAL_TOPICS
from harness.core.remains import RESULTS, SCRATCH, ready_results
from harness.history.runfile import RunMeta

_SMALL_BYTES = 64 * 1024 * 1024
_LOGS = ("batches", "records", "log_ends", "captured_logs")
_NAMES = ", ".join(f"'{name}'" for name in INTERNAL_TOPICS)
_OWN = f"coalesce(topic IN ({_NAMES}), false)"  # a row without a topic belongs to no mirror
_LOGGED = "coalesce(event = 'log', false)"


class Tables:
    """The views of one run, the argument of a checker's `check`."""

    def __init__(self, stored: Stored, *, contract: str | None = None) -> None:
        self.locks = Locks()
        self.stored = stored
        self.contract = contract
        self.spark: SparkSession = stored.spark
        self.meta: RunMeta = stored.meta
        folder = stored.path / RESULTS / f"{SCRATCH}{uuid.uuid4().hex[:8]}"
        self._scratch = Scratch(folder, stored.spark, small=not self.large and stored.size <= _SMALL_BYTES)

    @classmethod
    def open(cls, path: Path, spark: SparkSession, *, contract: str | None = None) -> Tables:
        """Open a run folder. contract: name of the contract to judge by, if not the run's own.

        Raises HistoryError; StorageError where no results can be stored.
        """
        stored = open_stored(path, spark)
        ready_results(path)
        return cls(stored, contract=contract)

    # -- stored tables ------------------------------------------------------------------------------------------

    def has(self, table: str) -> bool:
        """Whether a stored table is there."""
        return self.stored.has(table)

    def table(self, name: str) -> DataFrame:
        """A stored table, all columns of the schema; empty when it is missing. Mirrors' own topics are left out, and
        what is known from them (`state_log`)."""
        found = self._stored(name)
        if name == "mirror_states":
            return found.where(f"not {_LOGGED}")
        return found.where(f"not {_OWN}") if name in _LOGS else found

    def state_log(self) -> DataFrame:
        """The rows of `mirror_states` that are records of mirrors' own state topics: every state, in order, but stored
        later or earlier than a description shows it."""
        return self._stored("mirror_states").where(_LOGGED)

    def own_topics(self, name: str) -> DataFrame:
        """The rows of a table of logs (batches, records, log_ends) for topics in which mirrors keep their state."""
        return self._stored(name).where(_OWN)

    def _stored(self, name: str) -> DataFrame:
        """A stored table, whole. One of a small run is read once: opening its files costs more than their rows."""

        def read() -> DataFrame:
            found = self.stored.table(name)
            return self.cache(found) if self._scratch.small else found

        return built_once(self, f"stored {name}", read)

    def cache(self, frame: DataFrame) -> DataFrame:
        """Compute a view once, for several checkers (see `scratch`); removed by `close`."""
        return self._scratch.keep(frame)

    def once(self, name: str, build: Callable[[Tables], DataFrame | None]) -> DataFrame | None:
        """A view of another module (None: there is nothing of it), built and cached when it is first asked for."""

        def cached() -> DataFrame | None:
            frame = build(self)
            return None if frame is None else self.cache(frame)

        return built_once(self, f"once {name}", cached)

    def is_empty(self, frame: DataFrame) -> bool:
        """Whether it is a cached view (itself, not one made of it) without rows."""
        return self._scratch.is_empty(frame)

    def found(self, frame: DataFrame) -> DataFrame | None:
        """`frame`, computed, or None when it has no rows: most of what a checker looks for is not there, and then what
        it would do with it need not be planned, which costs more than computing it."""
        kept = self.cache(frame)
        return None if self.is_empty(kept) else kept

    @view
    def no_anomalies(self) -> DataFrame:
        """What a checker returns that found nothing."""
        schema = ", ".join(f"`{name}` {kind}" for name, kind in ANOMALY_COLUMNS)
        return self._scratch.nothing(cast("T.StructType", T.StructType.fromDDL(schema)))

    def store(self, frame: DataFrame) -> Path:
        """As `cache`, but returns the folder of Parquet files."""
        return self._scratch.store(frame)

    def close(self) -> None:
        """Remove cached views."""
        self._scratch.close()

    # -- topics -------------------------------------------------------------------------------------------------

    def canonical(self, cluster: Column | str = "cluster", topic: Column | str = "topic") -> Column:
        """The topic's name on A, of a topic named `topic` on `cluster`."""
        return topic_names.on_a(self.meta, cluster, topic)

    @view
    def mirror_pairs(self) -> tuple[tuple[str, str], ...]:
        """(source, destination) letters, in the order of the chain: A→B, then B→C when there is a C."""
        letters = set(self.meta.clusters)
        if not letters:
            named = self.table("log_ends").select("cluster").union(self.table("ops").select("cluster"))
            letters = {r[0] for r in named.distinct().collect() if r[0] in ("A", "B", "C")}
        return tuple((s, d) for s, d in (("A", "B"), ("B", "C")) if s in letters and d in letters)

    # -- the evidence: replicas' logs ---------------------------------------------------------------------------

    @view
    def expected(self) -> DataFrame | None:
        """The replicas whose logs had to be captured. See `completeness.replicas_expected`."""
        return completeness.replicas_expected(self)

    @view
    def gaps(self) -> tuple[completeness.Gap, ...]:
        """The replicas whose logs are missing or incomplete. See `completeness`."""
        return completeness.gaps(self)

    @view
    def replicas(self) -> DataFrame:
        """The last snapshot of each replica whose log is complete. See `replica_logs.last_snapshots`."""
        return replica_logs.last_snapshots(self)

    @view
    def log(self) -> DataFrame:
        """Every record of every replica in its last snapshot. See `replica_logs.records`."""
        return replica_logs.records(self)

    @view
    def log_batches(self) -> DataFrame:
        """Every batch of every replica in its last snapshot: the columns of `batches`, `origin_topic`, and the
        replica's log_start, log_end, high_watermark, last_stable."""
        return replica_logs.at_last_snapshot(self, self.table("batches"))

    @view
    def has_markers(self) -> bool:
        """Whether a log holds a transaction marker."""
        return self.table("records").where("control_type in ('COMMIT', 'ABORT')").limit(1).count() > 0

    @view
    def truth(self) -> DataFrame:
        """The replica with the authoritative log, one row per partition. See `replica_logs.authoritative`."""
        return replica_logs.authoritative(self)

    @view
    def truth_log(self) -> DataFrame:
        """The records of the authoritative log (`truth`), one log per partition: columns as `log`."""
        return self.cache(replica_logs.records(self, only=self.truth))

    @view
    def carried_under_faults(self) -> under_faults.MirroredUnderFaults:
        """The records that the mirror copied under each fault. See `under_faults`."""
        return under_faults.carried_under_faults(self)

    # -- the history: what clients did --------------------------------------------------------------------------

    @view
    def facts(self) -> Facts:
        """Which events the history contains."""
        return learn(self.stored)

    @view
    def ops(self) -> DataFrame:
        """Events with `op`, the index of the invoke that the event belongs to. See `history.paired_ops`."""
        return history.paired_ops(self)

    @view
    def incarnations(self) -> Incarnations:
        """Topics that were deleted, and when which of their incarnations ended. See `recreations.windows`."""
        return recreations.windows(self)

    @view
    def incarnation_windows(self) -> DataFrame | None:
        """`incarnations` to join with; None where no topic was deleted. See `incarnations.as_frame`."""
        return incarnations.as_frame(self, self.incarnations)

    @view
    def eras_by_id(self) -> DataFrame | None:
        """Logs whose incarnation follows from their topic id. See `topic_ids.by_id`."""
        return topic_ids.by_id(self)

    @view
    def failbacks(self) -> Failbacks:
        """The failbacks, by partition. See `failbacks.failbacks`."""
        return failbacks.failbacks(self)

    @view
    def txns(self) -> DataFrame:
        """Transactions made of separate steps and how they ended. See `history.transactions`."""
        return history.transactions(self)

    @view
    def sends(self) -> DataFrame:
        """One row per value and operation that sent it: op (invoke index), position, value, key, cluster, topic,
        origin_topic, partition, era, straddles, offset, process, client, txn, f, type (ok, fail, info: the
        operation's), outcome, invoke_ns, done_index, done_ns, decided_index, commit_asked, producer_id, producer_epoch,
        sequence, phase.

        outcome: `acked` (outside a transaction), `committed`, `aborted`, `failed`, `unknown`. An operation with two
        contradictory completions, or with none, is `unknown`. era: see `incarnations`; straddles: by its times it may
        belong to several incarnations, though its offset may have decided. commit_asked: index of the first request to
        commit its transaction (`history.NEVER`: none; null: unknown, or outside transactions).
        """
        return self.cache(history.sends(self))

    @view
    def reads(self) -> DataFrame:
        """One row per record that a poll returned: op_index (of the completion), op, position, value, cluster, topic,
        origin_topic, partition, era, offset, leader_epoch, process, client, f, txn, group, isolation, reset, phase,
        type, time_ns."""
        return self.cache(history.reads(self))

    @view
    def polled(self) -> DataFrame:
        """Records that polls returned, one row per cluster, topic, partition, era, offset and value: op_index (of the
        first such poll), readers (polls), final (a final read returned it), committed (a read_committed poll did),
        first_ns."""
        return self.cache(history.polled(self.reads))

    @property
    def transactional(self) -> bool:
        """Whether there are transactions: of clients, or in a log (e.g. a mirror's own)."""
        return self.facts.transactional or (self.has("records") and self.has_markers)

    @view
    def logged_values(self) -> DataFrame:
        """Data records of the authoritative logs: cluster, topic, partition, era, offset, value, producer_id,
        producer_epoch, sequence, and txn_end: COMMIT, ABORT or OPEN (null outside transactions)."""
        rows = self.truth_log.where("control_type is null and value is not null")
        rows = rows.join(F.broadcast(self.truth.select(*PARTITION, "era")), list(PARTITION))
        end = F.when(F.col("in_txn"), F.coalesce("txn_end", F.lit("OPEN")))
        producer = ("producer_id", "producer_epoch", "sequence")
        return rows.select(*PARTITION, "era", "offset", "value", *producer, end.alias("txn_end"))

    @view
    def stored_values(self) -> DataFrame:
        """Data records of the authoritative logs, without aborted ones: cluster, topic, partition, era, offset,
        value."""
        rows = self.logged_values.where("txn_end is null or txn_end != 'ABORT'")
        return rows.select(*PARTITION, "era", "offset", "value")

    @view
    def seen(self) -> DataFrame:
        """Values seen by polls or in the authoritative log: the columns of `polled`; stored (the log holds it, not
        aborted); and for records in the log, aborted or not, producer_id, producer_epoch, sequence and txn_end, as
        `logged_values` (else null). readers is 0, and op_index and first_ns null, where only the log shows it; aborted
        records that were never read are left out."""
        return self.cache(history.seen(self.polled, self.logged_values if self.has("records") else None))

    # -- the close check and the prefilter before it --------------------------------------------------------------

    @property
    def large(self) -> bool:
        """Whether the run is so large that only what the prefilter keeps is checked closely."""
        return self.stored.rows > SMALL_ROWS

    @view
    def prefilter(self) -> prefiltered.Prefilter:
        """The prefilter over a large run."""
        return prefiltered.Prefilter(self)

    @property
    def _near(self) -> DataFrame:
        return self.prefilter.suspects

    @view
    def near_sends(self) -> DataFrame:
        """`sends`, only of the values that need a close check."""
        return self.cache(history.sends(self, only=self._near)) if self.large else self.sends

    @view
    def near_reads(self) -> DataFrame:
        """`reads`, only of the values that need a close check."""
        return self.cache(history.reads(self, only=self._near)) if self.large else self.reads

    @view
    def near_polled(self) -> DataFrame:
        """`polled`, only of the values that need a close check."""
        return self.cache(history.polled(self.near_reads)) if self.large else self.polled

    @view
    def near_seen(self) -> DataFrame:
        """`seen`, only of the values that need a close check."""
        if not self.large:
            return self.seen
        return self.cache(history.seen(self.near_polled, self.near_logged if self.has("records") else None))

    @property
    def near_logged(self) -> DataFrame:
        """`logged_values`, only of the values that need a close check."""
        if not self.large:
            return self.logged_values
        return self.logged_values.withColumn("vh", F.xxhash64("value")).join(self._near, "vh", "left_semi").drop("vh")

    @view
    def final_state(self) -> DataFrame:
        """The final state of each partition. See `partitions.final_state`."""
        return partitions.final_state(self)

    @view
    def observed(self) -> frozenset[tuple[str, str]]:
        """(cluster, topic) of which at least one partition was observed."""
        rows = self.final_state.where("cluster is not null and topic is not null")
        return frozenset((r[0], r[1]) for r in rows.select("cluster", "topic").distinct().collect())

    @view
    def compacted(self) -> DataFrame | None:
        """Topics that are compacted: cluster, topic; None when there are none. See `compaction.compacted`."""
        return compaction.compacted(self)

    @view
    def suspects(self) -> DataFrame:
        """Values with possible anomalies, with everything known about them. See `value_outcomes.suspects`."""
        return value_outcomes.suspects(self)

    @view
    def unsuspected(self) -> bool:
        """Whether no value is suspect, so that checkers of `suspects` and `conflicts` have nothing to find."""
        if self.large:
            return self.is_empty(self._near)
        return self.is_empty(self.suspects) and self.is_empty(self.conflicts)

    @view
    def conflicts(self) -> DataFrame:
        """The rows of `near_seen` at offsets where two or more values were seen."""
        place = [*PARTITION, "era", "offset"]
        seen = self.near_seen.where(~incarnations.undecided())
        mixed = seen.groupBy(*place).agg(F.min("value").alias("_least"), F.max("value").alias("_most"))
        mixed = mixed.where("_least != _most").select(*place)
        return self.cache(seen.join(mixed, place, "left_semi"))
