"""First pass over the events: a range of the history as numbers, keyed by value, by place and by line.

A *line* is one process at one place (`places`). Sends and reads that occur several times in a range are one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from checkers.eras import UNDECIDED
from checkers.prefilter import spans
from checkers.prefilter.buckets import by_blocks, by_place, by_value
from checkers.prefilter.coded import Coded, ints
from checkers.prefilter.hashing import Ints, Mask, mixed, xxh64
from checkers.prefilter.order import GIVEN, polls_of, sends_in_order
from checkers.prefilter.packed import ARROW, Columns, Map, batch, pack, picked, runs
from checkers.prefilter.places import Context, Events, located
from checkers.prefilter.rows import (
    BY_COMMITTED,
    DONE,
    FAIL,
    FINAL,
    NEVER,
    NONE,
    OK,
    READ,
    STEPPED,
    STRADDLES,
    WHOLE,
    combined_reads,
    combined_sends,
)
from checkers.prefilter.spans import Span

ENDS = pa.schema(
    [("cluster", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("era", pa.int32())]
    + [(name, pa.int64()) for name in ("max_read", "max_committed")]
)
SCHEMA = pa.schema([*ARROW, *ENDS])
FIRST = (
    "kind string, bucket int, data binary, cluster string, topic string, partition int, era int,"
    " max_read bigint, max_committed bigint"
)
_OPS = ("index", "time_ns", "process", "type", "f", "invoke_index", "phase", "cluster", "txn", "isolation")
_RECORDS = ("op_index", "position", "action", "topic", "partition", "offset", "value")
_GIVEN = ("index", "time_ns", "process", "cluster", "topic", "partition", "offset")


def first_pass(context: Context, planned: tuple[Span, ...]) -> Map:
    """A function for `mapInArrow` over numbers of ranges (column id); gives rows of FIRST."""

    def scan(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in numbers:
            for number in some.column("id").to_pylist():
                span = planned[number]
                ops, records = spans.read(span, "ops", _OPS), spans.read(span, "op_records", _RECORDS)
                yield from _blocks(context, _Rows(context, ops, records), _given(context, span))

    return scan


def _given(context: Context, span: Span) -> Columns:
    """The positions that consumers were given within a range, as reads of the offset before."""
    names = ("line", "place", "index", "position", "offset")
    if context.given is None:
        return dict.fromkeys(names, np.zeros(0, np.int64))
    index = pc.field("index")
    held = ds.dataset(context.given, format="parquet")
    rows = held.to_table(list(_GIVEN), filter=(index >= span.low) & (index < span.high), use_threads=False)
    cluster, topic, offset = Coded(rows["cluster"]), Coded(rows["topic"]), ints(rows["offset"])
    partition, time = ints(rows["partition"], NONE), ints(rows["time_ns"])
    at = ints(rows["index"])
    place, _, _ = located(context, cluster, topic, partition, events=Events(at, at, time, offset))
    line = np.where(place == 0, 0, mixed(Coded(rows["process"]).keys(), place))
    found = (line, place, at, np.full(len(line), GIVEN), offset - 1)
    return picked(dict(zip(names, found, strict=True)), place != 0)


class _Events:
    """Events, in order of the history. op: index of the invocation; sent_bits: of what an event sent (bits of `sends`);
    seen_bits, first: of what it polled; asked: as `_decided`."""

    def __init__(self, context: Context, ops: pa.Table) -> None:
        kind, f, txn = Coded(ops["type"]), Coded(ops["f"]), ops["txn"]
        invoked, whole = kind.among("invoke"), f.among("txn")
        self.index, self.time, self.cluster = ints(ops["index"]), ints(ops["time_ns"]), Coded(ops["cluster"])
        self.process = Coded(ops["process"]).keys()
        self.op = np.where(invoked, self.index, ints(ops["invoke_index"], self.index))
        self.sends = f.among("send", "txn")
        self.polls = f.among("poll", "txn") & ~invoked
        stepped = txn.is_valid().to_numpy()
        named = mixed(xxh64(txn), self.cluster.keys("A")) if stepped.any() else np.zeros(len(self.op), np.int64)
        self.txn = np.where(stepped, named, np.where(whole, mixed(self.op), 0))
        decided, asked = _decided(context, named, stepped)
        self.asked = np.where(whole, self.op, asked)
        bits = ~invoked * DONE | kind.bits(OK, "ok") | kind.bits(FAIL, "fail") | f.bits(WHOLE, "txn")
        self.sent_bits = bits | stepped * STEPPED | decided
        by_default = ("read_committed", None) if context.read_committed_by_default else ("read_committed",)
        committed = Coded(ops["isolation"]).among(*by_default)
        self.seen_bits = READ | Coded(ops["phase"]).bits(FINAL, "final") | committed * BY_COMMITTED
        self.first = np.where(committed & ~invoked, self.index, NEVER)


class _Rows:
    """Records of sends and polls, each with the event that it belongs to; columns in order of the history."""

    def __init__(self, context: Context, ops: pa.Table, records: pa.Table) -> None:
        events, action = _Events(context, ops), Coded(records["action"])
        at, rows = _matched(events.index, records, np.flatnonzero(action.among("send", "poll")))
        self.index, self.op, self.time, self.txn = (c[at] for c in (events.index, events.op, events.time, events.txn))
        self.asked, self.first, self.seen_bits = events.asked[at], events.first[at], events.seen_bits[at]
        self.position = ints(records["position"])[rows]
        self.partition = ints(records["partition"], NONE)[rows]
        self.offset = ints(records["offset"], NONE)[rows]
        value = records["value"].combine_chunks() if isinstance(records["value"], pa.ChunkedArray) else records["value"]
        self.vh = xxh64(value)[rows]
        self.cluster, self.topic = events.cluster.take(at), Coded(records["topic"]).take(rows)
        self.place, self.target, self.era = located(
            context,
            self.cluster,
            self.topic,
            self.partition,
            events=Events(self.op, self.index, self.time, self.offset),
        )
        self.sent_bits = events.sent_bits[at] | (self.era >= UNDECIDED) * np.int64(STRADDLES)
        self.line = np.where(self.place == 0, 0, mixed(events.process[at], self.place))
        valued = records["value"].is_valid().to_numpy()[rows]
        send = action.among("send")[rows]
        self.sends = np.flatnonzero(send & valued & events.sends[at])
        polled = ~send & events.polls[at]
        polled &= records["offset"].is_valid().to_numpy()[rows] & (self.place != 0)
        self.polls = np.flatnonzero(polled)
        self.reads = np.flatnonzero(polled & valued)


def _matched(index: Ints, records: pa.Table, wanted: Ints) -> tuple[Ints, Ints]:
    """Row numbers of events, and of the wanted records that belong to them."""
    of = ints(records["op_index"])[wanted]
    at = np.searchsorted(index, of)
    found = at < len(index)
    found[found] = index[at[found]] == of[found]
    return at[found], wanted[found]


def _decided(context: Context, named: Ints, stepped: Mask) -> tuple[Ints, Ints]:
    """The bits COMMITTED and ABORTED of the transactions that the rows are steps of, and the index of the last request
    to commit them."""
    bits, asked = np.zeros(len(named), np.int64), np.full(len(named), NONE)
    if context.decided is None or not stepped.any():
        return bits, asked
    ends = pq.read_table(context.decided)
    keys = mixed(ints(ends["th"]), Coded(ends["cluster"]).keys("A"))
    if not len(keys):
        return bits, asked
    order = np.argsort(keys)
    at = np.minimum(np.searchsorted(keys, named, sorter=order), len(keys) - 1)
    known = stepped & (keys[order][at] == named)
    found = order[at]
    return np.where(known, ints(ends["bits"])[found], bits), np.where(known, ints(ends["asked"])[found], asked)


def _blocks(context: Context, rows: _Rows, given: Columns) -> Iterator[pa.RecordBatch]:
    sends = combined_sends(
        {
            **{name: getattr(rows, name)[rows.sends] for name in ("vh", "op", "place", "target", "line", "txn")},
            "offset": np.maximum(rows.offset[rows.sends], NONE),
            "bits": rows.sent_bits[rows.sends],
            "asked": rows.asked[rows.sends],
            "invoked": rows.time[rows.sends],
            "ended": np.where(rows.sent_bits[rows.sends] & DONE != 0, rows.time[rows.sends], np.int64(NONE)),
        }
    )
    reads = {name: getattr(rows, name)[rows.reads] for name in ("vh", "place", "target", "offset", "txn")}
    reads = combined_reads({**reads, "bits": rows.seen_bits[rows.reads], "first": rows.first[rows.reads]})
    acknowledged = picked(sends, (sends["offset"] >= 0) & (sends["place"] != 0))
    yield _ends(rows)
    out = [*by_value(context.buckets, "sends", sends), *by_value(context.buckets, "reads", reads)]
    out += [*by_place(context.buckets, reads), *by_place(context.buckets, acknowledged)]
    named = {"line": rows.line, "op": rows.op, "position": rows.position, "offset": rows.offset, "bits": rows.sent_bits}
    order = sends_in_order(picked(named, rows.sends))
    out += pack("order", order, order["line"] % context.buckets)
    read = {name: np.concatenate([getattr(rows, name)[rows.polls], column]) for name, column in given.items()}
    polls, back, gaps = polls_of(read)
    out += pack("polls", polls, polls["line"] % context.buckets)
    out += [*pack("back", back), *by_blocks(context.buckets, gaps)]
    yield as_first(out)


def _ends(rows: _Rows) -> pa.RecordBatch:
    """How far each place was read."""
    place, offset, bits = rows.place[rows.reads], rows.offset[rows.reads], rows.seen_bits[rows.reads]
    order = np.argsort(place, kind="stable")
    place, offset, bits = place[order], offset[order], bits[order]
    starts = runs(place)
    first = rows.reads[order][starts]

    def most(bit: int) -> pa.Array:
        if not len(starts):
            return pa.array([], pa.int64())
        found = np.maximum.reduceat(np.where(bits & bit != 0, offset, np.iinfo(np.int64).min), starts)
        return pa.array(found, mask=found == np.iinfo(np.int64).min)

    def named(column: Coded, default: str) -> pa.Array:
        return pa.array([column.names[c] or default for c in column.codes[first].tolist()], pa.string())

    count = len(starts)
    columns = [
        pa.array(["ends"] * count, pa.string()),
        *(pa.nulls(count, ARROW.field(n).type) for n in ("bucket", "data")),
        *(named(rows.cluster, "A"), named(rows.topic, "")),
        pa.array(rows.partition[first], pa.int32()),
        pa.array(rows.era[first], pa.int32()),
        *(most(READ), most(BY_COMMITTED)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def as_first(blocks: list[tuple[str, int, bytes]]) -> pa.RecordBatch:
    """Blocks as rows of FIRST."""
    return pa.RecordBatch.from_arrays(
        [*batch(blocks).columns, *(pa.nulls(len(blocks), f.type) for f in ENDS)], schema=SCHEMA
    )
