"""Runs the sieve (`checkers.sieve`) on Spark and gives what it lets through, as frames to join with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers.history import KEY
from checkers.sieve import follow, spans
from checkers.sieve.events import FIRST, Coded, Context, first_pass, ints, located, stored_pass
from checkers.sieve.packed import KINDS, SCHEMA, Columns, unpack
from checkers.sieve.values import Ends, second_pass
from checkers.views import Locks, view

if TYPE_CHECKING:
    from checkers.tables import Tables

BUCKET_ROWS = 2_000_000
"""Stored rows per bucket: what a task of the second pass holds in memory, before rows that repeat became one."""
MOST_BUCKETS = 20_000
_LEAST = np.iinfo(np.int64).min


class Sieve:
    """The sieve over one run."""

    def __init__(self, t: Tables) -> None:
        self.locks = Locks()
        self._t = t
        self._buckets = min(MOST_BUCKETS, max(4, t.stored.rows // BUCKET_ROWS))

    @view
    def suspects(self) -> DataFrame:
        """Hashes of the values that need a close look: vh, each once."""
        found = [self._rows(self._second, "suspects")]
        lines = self._collected(self._second, "bad_lines")["line"]
        if len(lines):
            sends = self._blocks(self._first, "sends")
            found.append(self._rows(sends.mapInArrow(follow.of_lines(lines), SCHEMA), "suspects"))
        if self._t.facts.transactional:
            shown = self._by_bucket(self._blocks(self._second, "shown"))
            found.append(self._rows(shown.mapInArrow(follow.of_transactions, SCHEMA), "suspects"))
        if self._gaps is not None:
            found.append(self._rows(self._gaps, "suspects"))
        every = found[0]
        for more in found[1:]:
            every = every.unionAll(more)
        return self._t.cache(every.distinct())

    @view
    def steps(self) -> DataFrame:
        """Steps of a consumer from read to read that go back, or over something that is there: op_index, position,
        before (offset), before_index."""
        found = [self._first, self._second, *([] if self._gaps is None else [self._gaps])]
        rows = self._rows(found[0], "back")
        for more in found[1:]:
            rows = rows.unionAll(self._rows(more, "back"))
        rows = rows.select(F.col("index").alias("op_index"), "position", "before", "before_index").distinct()
        return self._t.cache(rows.withColumn("position", F.col("position").cast("int")))

    @view
    def polled_ends(self) -> DataFrame:
        """The polled part of `partitions.final_state`."""
        return (
            self._first.where("kind = 'ends'")
            .groupBy(*KEY)
            .agg(*(F.max(name).alias(name) for name in ("max_read", "max_committed", "max_final")))
        )

    # -- the passes ---------------------------------------------------------------------------------------------

    @view
    def _first(self) -> DataFrame:
        t = self._t
        files = self._files(sort=False)
        planned = spans.plan(files)
        if spans.scattered(files, planned):
            planned = spans.plan(self._files(sort=True))
        numbers = t.spark.range(0, len(planned), 1, max(1, len(planned)))
        rows = numbers.mapInArrow(first_pass(self._context, planned), FIRST)
        if t.has("records"):
            stored = t.stored_values.select(*KEY, "offset", F.xxhash64("value").alias("vh"))
            rows = rows.unionAll(stored.mapInArrow(stored_pass(self._context), FIRST))
        return t.cache(rows)

    def _files(self, *, sort: bool) -> dict[str, Any]:
        """table → its files; events with the operation that they belong to."""
        t = self._t
        files: dict[str, Any] = {table: t.stored.run.files.get(table, ()) for table in spans.INDEX}
        for table, index in spans.INDEX.items():
            guessed = table == "ops" and t.facts.unpaired
            if sort or guessed:
                frame = t.ops.withColumn("invoke_index", F.col("op")).drop("op") if guessed else t.table(table)
                parts = max(1, t.stored.run.rows(table) // spans.SPAN_ROWS)
                frame = frame.repartitionByRange(parts, index).sortWithinPartitions(index)
                files[table] = sorted(t.store(frame).glob("*.parquet"))
        return files

    @view
    def _context(self) -> Context:
        t = self._t
        deleted = {} if t.deletions is None else {(r[0], r[1]): tuple(r[2]) for r in t.deletions.collect()}
        decided = None
        if t.facts.txn_steps:
            ends = t.txns.where("txn_outcome != 'unknown'")
            committed = (F.col("txn_outcome") == "committed").alias("committed")
            decided = str(t.store(ends.select("cluster", F.xxhash64("txn").alias("th"), committed)))
        maps = {"B": t.meta.topic_map, **t.meta.topic_maps}
        return Context(
            topics={(c, there): here for c, names in maps.items() for here, there in names.items() if here != there},
            deleted=deleted,
            decided=decided,
            read_committed_by_default=t.meta.source == "edn",
            buckets=self._buckets,
        )

    @view
    def _second(self) -> DataFrame:
        blocks = self._by_bucket(self._blocks(self._first, "sends", "reads", "spots", "order", "polls"))
        return self._t.cache(blocks.mapInArrow(second_pass(self._ends()), SCHEMA))

    def _ends(self) -> Ends:
        t = self._t
        state = t.final_state
        flags = F.lit(False)
        if t.compacted is not None:
            compacted = F.broadcast(t.compacted.withColumn("compacted", F.lit(True)))
            state = state.join(compacted, ["cluster", "topic"], "left")
            flags = F.coalesce("compacted", F.lit(False))
        rows = state.withColumn("excused", flags).toArrow()
        cluster, topic = Coded(rows["cluster"]), Coded(rows["topic"])
        era = ints(rows["era"])
        place, _, _ = located(self._context, cluster, topic, ints(rows["partition"], -1), era=era)
        deleted = [len(self._context.deleted.get((c or "", n or ""), ())) for c, n in _pairs(rows)]
        rc_start, rc_end = ints(rows["rc_start"], 0), ints(rows["rc_end"], _LEAST)
        if not t.has("final_reads"):
            rc_start, rc_end = np.full(len(place), _LEAST), ints(rows["max_committed"], _LEAST)
        order = np.argsort(place)

        def column(values: Any, nowhere: int | bool) -> Any:
            return np.insert(np.asarray(values)[order], 0, nowhere)

        return Ends(
            place=column(place, 0),
            look_ns=column(ints(rows["look_ns"], -1), -1),
            log_start=column(ints(rows["log_start"]), 0),
            final_ns=column(ints(rows["final_ns"], -1), -1),
            any_final=column(rows["max_final"].is_valid(), False),
            excused=column(rows["excused"].to_numpy() | (np.array(deleted, np.int64) > era), False),
            rc_start=column(rc_start, 0),
            rc_end=column(rc_end, _LEAST),
            imported=t.stored.imported,
            buckets=self._buckets,
        )

    @view
    def _gaps(self) -> DataFrame | None:
        """Steps over something, and what lies there; None when no read was followed by another than the next."""
        sides = (self._first, self._second)
        found = sides[0].select("kind").unionAll(sides[1].select("kind"))
        if found.where("kind in ('gaps', 'wide')").isEmpty():
            return None
        parts = [self._collected(side, "wide") for side in sides]
        wide = {name: np.concatenate([part[name] for part in parts]) for name in KINDS["wide"]}
        blocks = self._blocks(self._first, "spots", "gaps").unionAll(self._blocks(self._second, "gaps"))
        return self._t.cache(self._by_bucket(blocks).mapInArrow(follow.of_gaps(wide), SCHEMA))

    # -- blocks -------------------------------------------------------------------------------------------------

    def _blocks(self, frame: DataFrame, *kinds: str) -> DataFrame:
        return frame.where(F.col("kind").isin(*kinds)).select("kind", "bucket", "data")

    def _by_bucket(self, blocks: DataFrame) -> DataFrame:
        return blocks.repartitionById(self._buckets, F.col("bucket"))

    def _collected(self, frame: DataFrame, kind: str) -> Columns:
        return unpack(kind, (bytes(row[0]) for row in self._blocks(frame, kind).select("data").collect()))

    def _rows(self, frame: DataFrame, kind: str) -> DataFrame:
        """The rows of all blocks of a kind."""
        schema = ", ".join(f"`{name}` bigint" for name in KINDS[kind])
        return self._blocks(frame, kind).select("data").mapInArrow(_unpacked(kind), schema)


def _unpacked(kind: str) -> Any:
    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in batches:
            yield pa.RecordBatch.from_pydict(dict(unpack(kind, some.column("data").to_pylist())))

    return look


def _pairs(rows: pa.Table) -> Iterator[tuple[str | None, str | None]]:
    return zip(rows["cluster"].to_pylist(), rows["topic"].to_pylist(), strict=True)
