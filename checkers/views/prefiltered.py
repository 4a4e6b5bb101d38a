"""Runs the prefilter (`checkers.prefilter`) on Spark and returns what it keeps, as frames to join with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from checkers.eras import UNDECIDED
from checkers.prefilter import follow, spans
from checkers.prefilter.coded import Coded, ints
from checkers.prefilter.events import FIRST, first_pass
from checkers.prefilter.logs import stored_pass
from checkers.prefilter.packed import KINDS, SCHEMA, Columns, Map, unpack
from checkers.prefilter.places import Context, located
from checkers.prefilter.rows import ABORTED, COMMITTED
from checkers.prefilter.values import Ends, second_pass
from checkers.spark.files import read_parquet
from checkers.spark.scratch import empty_frame
from checkers.views import positions
from checkers.views.cache import Locks, view
from checkers.views.history import KEY

if TYPE_CHECKING:
    from checkers.views.tables import Tables

BUCKET_ROWS = 2_000_000
"""Stored rows per bucket: what a task of the second pass holds in memory, before duplicates are merged."""
MOST_BUCKETS = 20_000
_LEAST = np.iinfo(np.int64).min


class Prefilter:
    """The prefilter over one run."""

    def __init__(self, t: Tables) -> None:
        self.locks = Locks()
        self._t = t
        self._buckets = min(MOST_BUCKETS, max(4, t.stored.rows // BUCKET_ROWS))

    @view
    def suspects(self) -> DataFrame:
        """Hashes of the values that need a close check: vh, each once."""
        first, second, gaps = self._first, self._second, self._gaps
        found = [side.blocks("suspects") for side in (second, gaps) if side is not None and "suspects" in side.kinds]
        if "bad_lines" in second.kinds:
            found.append(first.blocks("sends").mapInArrow(follow.of_lines(second.rows("bad_lines")["line"]), SCHEMA))
        if "shown" in second.kinds:
            found.append(self._by_bucket(second.blocks("shown")).mapInArrow(follow.of_transactions, SCHEMA))
        return self._t.cache(self._unpacked("suspects", found).distinct())

    @view
    def steps(self) -> DataFrame:
        """Steps of a consumer from read to read that go back, or over existing records: op_index, position,
        before (offset), before_index."""
        sides = (self._first, self._second, self._gaps)
        found = [side.blocks("back") for side in sides if side is not None and "back" in side.kinds]
        rows = self._unpacked("back", found)
        position = F.col("position").cast("int").alias("position")
        rows = rows.select(F.col("index").alias("op_index"), position, "before", "before_index")
        return self._t.cache(rows.distinct())

    @view
    def polled_ends(self) -> DataFrame:
        """The polled part of `partitions.final_state`."""
        return (
            self._first.frame.where("kind = 'ends'")
            .groupBy(*KEY)
            .agg(*(F.max(name).alias(name) for name in ("max_read", "max_committed")))
        )

    # -- the passes ---------------------------------------------------------------------------------------------

    @view
    def _first(self) -> _Stored:
        t = self._t
        files = self._files(sort=False)
        planned = spans.plan(files)
        if spans.scattered(files, planned):
            planned = spans.plan(self._files(sort=True))
        numbers = t.spark.range(0, len(planned), 1, max(1, len(planned)))
        rows = numbers.mapInArrow(first_pass(self._context, planned), FIRST)
        if t.has("records"):
            aborted = F.coalesce(F.col("txn_end") == "ABORT", F.lit(False)).alias("aborted")
            stored = t.logged_values.select(*KEY, "offset", F.xxhash64("value").alias("vh"), aborted)
            rows = rows.unionAll(stored.mapInArrow(stored_pass(self._context), FIRST))
        return self._stored(rows)

    def _files(self, *, sort: bool) -> dict[str, Sequence[Path]]:
        """table → its files; events with the operation that they belong to."""
        t = self._t
        files: dict[str, Sequence[Path]] = {table: t.stored.run.files.get(table, ()) for table in spans.INDEX}
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
        decided = None
        if t.facts.txn_steps:
            outcome = F.col("txn_outcome")
            bits = F.when(outcome == "committed", COMMITTED).when(outcome == "aborted", ABORTED).otherwise(0)
            # Without a request every reader came before it.
            asked = F.when(F.size("asked") == 0, (1 << 63) - 1).otherwise(F.coalesce(F.array_max("asked"), F.lit(-1)))
            columns = (bits.cast("bigint").alias("bits"), asked.cast("bigint").alias("asked"))
            decided = str(t.store(t.txns.select("cluster", F.xxhash64("txn").alias("th"), *columns)))
        maps = {"B": t.meta.topic_map, **t.meta.topic_maps}
        return Context(
            topics={(c, there): here for c, names in maps.items() for here, there in names.items() if here != there},
            incarnations=t.incarnations,
            failbacks=t.failbacks,
            decided=decided,
            read_committed_by_default=t.meta.source == "edn",
            buckets=self._buckets,
            given=self._given,
        )

    @property
    def _given(self) -> str | None:
        """The folder of `Context.given`."""
        found = positions.given(self._t)
        if found is None or self._t.is_empty(found):
            return None
        return str(
            self._t.store(found.select("index", "time_ns", "process", "cluster", "topic", "partition", "offset"))
        )

    @view
    def _second(self) -> _Stored:
        blocks = self._by_bucket(self._first.blocks("sends", "reads", "at_offsets", "order", "polls"))
        return self._stored(blocks.mapInArrow(second_pass(self._ends()), SCHEMA))

    def _ends(self) -> Ends:
        t = self._t
        state = t.final_state
        rows = state.toArrow()
        cluster, topic = Coded(rows["cluster"]), Coded(rows["topic"])
        era = ints(rows["era"])
        place, _, _ = located(self._context, cluster, topic, ints(rows["partition"], -1), era=era)
        windows = np.array([len(t.incarnations.get((c or "", n or ""), ())) for c, n in _pairs(rows)], np.int64)
        over = (windows > era) | (era >= UNDECIDED)
        rc_start, rc_end = ints(rows["rc_start"], 0), ints(rows["rc_end"], _LEAST)
        if not t.has("final_reads"):
            rc_start, rc_end = np.full(len(place), _LEAST), ints(rows["max_committed"], _LEAST)
        order = np.argsort(place)

        def column(values: NDArray[Any], nowhere: int | bool) -> NDArray[Any]:
            return np.insert(values[order], 0, nowhere)

        return Ends(
            place=column(place, 0),
            snapshot_ns=column(ints(rows["look_ns"], -1), -1),
            log_start=column(ints(rows["log_start"]), 0),
            final_ns=column(ints(rows["final_ns"], -1), -1),
            final_polls=column(np.array([c in t.facts.final_polls for c in rows["cluster"].to_pylist()], bool), False),
            excused=column(over, False),
            rc_start=column(rc_start, 0),
            rc_end=column(rc_end, _LEAST),
            imported=t.stored.imported,
            buckets=self._buckets,
        )

    @view
    def _gaps(self) -> _Stored | None:
        """Steps over records, and these records; None when every read was followed by the next offset."""
        sides = (self._first, self._second)
        if not any(side.kinds & {"gaps", "wide"} for side in sides):
            return None
        parts = [side.rows("wide") for side in sides]
        wide = {name: np.concatenate([part[name] for part in parts]) for name in KINDS["wide"]}
        blocks = self._first.blocks("at_offsets", "gaps").unionAll(self._second.blocks("gaps"))
        return self._stored(self._by_bucket(blocks).mapInArrow(follow.of_gaps(wide), SCHEMA))

    # -- blocks -------------------------------------------------------------------------------------------------

    def _stored(self, frame: DataFrame) -> _Stored:
        folder = self._t.store(frame)
        return _Stored(folder, read_parquet(self._t.spark, frame.schema, folder))

    def _by_bucket(self, blocks: DataFrame) -> DataFrame:
        return blocks.repartitionById(self._buckets, F.col("bucket"))

    def _unpacked(self, kind: str, found: list[DataFrame]) -> DataFrame:
        """The rows of all blocks of one kind."""
        schema = ", ".join(f"`{name}` bigint" for name in KINDS[kind])
        if not found:
            return empty_frame(self._t.spark, T.StructType([T.StructField(n, T.LongType()) for n in KINDS[kind]]))
        blocks = reduce(DataFrame.unionAll, found).where(F.col("kind") == kind)
        return blocks.select("data").mapInArrow(_unpacker(kind), schema)


@dataclass(frozen=True)
class _Stored:
    """The result of a pass: `frame` reads `folder`."""

    folder: Path
    frame: DataFrame

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of block in it."""
        return frozenset(ds.dataset(self.folder, format="parquet").to_table(["kind"])["kind"].unique().to_pylist())

    def blocks(self, *kinds: str) -> DataFrame:
        """Its blocks of some kinds."""
        return self.frame.where(F.col("kind").isin(*kinds)).select("kind", "bucket", "data")

    def rows(self, kind: str) -> Columns:
        """The rows of a kind with few rows, collected."""
        wanted = pc.field("kind") == kind
        found = ds.dataset(self.folder, format="parquet").to_table(["data"], filter=wanted)
        return unpack(kind, found["data"].to_pylist())


def _unpacker(kind: str) -> Map:
    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in batches:
            yield pa.RecordBatch.from_pydict(dict(unpack(kind, some.column("data").to_pylist())))

    return scan


def _pairs(rows: pa.Table) -> Iterator[tuple[str | None, str | None]]:
    return zip(rows["cluster"].to_pylist(), rows["topic"].to_pylist(), strict=True)
