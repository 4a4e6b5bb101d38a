"""First pass: a range of the history as numbers, keyed by value, by place and by line.

A *place* is a partition of one cluster (and era: a recreated topic is another one), a *target* a partition by its
topic's name on A, a *line* one process at one place. Sends and reads that occur several times in a range are one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from checkers.eras import UNDECIDED, Failbacks, Lives, era_of
from checkers.prefilter import spans
from checkers.prefilter.hashing import Ints, mixed, xxh64
from checkers.prefilter.order import GIVEN, polls_of, sends_in_order
from checkers.prefilter.packed import ARROW, Blocks, Columns, Map, batch, pack, picked, runs
from checkers.prefilter.spans import Span

Mask = NDArray[np.bool_]

DONE, OK, FAIL, WHOLE, STEPPED, COMMITTED, ABORTED, CONFUSED, STRADDLES = (1 << n for n in range(9))
"""Bits of `sends`: it has a completion, an ok, a fail; it is a transaction as one operation, or a step of one; that
transaction was committed, aborted; its events name different places; it may be of several lives of its topic."""
READ, FINAL, BY_COMMITTED, STORED, HELD_ABORTED = (1 << n for n in range(5))
"""Bits of `reads`: a poll returned it, a final one did, a read_committed one did; the log that counts holds it; holds
it aborted."""
NONE = -1
"""An unknown offset, time or index."""
NEVER = np.iinfo(np.int64).max
"""Index of an event that did not happen."""
BLOCK_BITS = 20
"""Offsets of one place are tested in blocks of 2^20, so that a single large partition can be split."""
ENDS = pa.schema(
    [("cluster", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("era", pa.int32())]
    + [(name, pa.int64()) for name in ("max_read", "max_committed", "max_final")]
)
SCHEMA = pa.schema([*ARROW, *ENDS])
FIRST = (
    "kind string, bucket int, data binary, cluster string, topic string, partition int, era int,"
    " max_read bigint, max_committed bigint, max_final bigint"
)
_OPS = ("index", "time_ns", "process", "type", "f", "invoke_index", "phase", "cluster", "txn", "isolation")
_RECORDS = ("op_index", "position", "action", "topic", "partition", "offset", "value")
_GIVEN = ("index", "time_ns", "process", "cluster", "topic", "partition", "offset")


@dataclass(frozen=True)
class Context:
    """The input of every task. topics: (cluster, topic there) → its name on A, where they differ. lives, failbacks:
    see `checkers.views.lives` and `checkers.views.failbacks`. decided: a folder of Parquet files with transactions
    (cluster, th: hash of the name, bits: COMMITTED or ABORTED, asked: index of the last request to commit it), or none.
    buckets: into how many parts everything is divided. given: a folder of Parquet files with the positions that
    consumers were given (columns of _GIVEN; see `checkers.views.positions`), or none."""

    topics: Mapping[tuple[str, str], str]
    lives: Lives
    failbacks: Failbacks
    decided: str | None
    read_committed_by_default: bool
    buckets: int
    given: str | None = None


class Coded:
    """A string column as numbers: `names`, and `codes` into them (the last name is null's)."""

    def __init__(self, column: Any) -> None:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], pa.string()).dictionary_encode()
        if not isinstance(array, pa.DictionaryArray):
            array = array.dictionary_encode()
        self.names: list[str | None] = [*array.dictionary.to_pylist(), None]
        self.codes: Ints = array.indices.fill_null(len(self.names) - 1).to_numpy(zero_copy_only=False).astype(np.int64)

    def among(self, *names: str | None) -> Mask:
        """True where the string is one of these."""
        return np.array([n in names for n in self.names])[self.codes]

    def bits(self, bit: int, *names: str) -> Ints:
        """The bit where the string is one of these, else 0."""
        return self.among(*names).astype(np.int64) * bit

    def keys(self, default: str = "") -> Ints:
        """The key of every row's string; for nulls that of `default`."""
        return self.of_names(default)[self.codes]

    def of_names(self, default: str = "") -> Ints:
        """The key of every name."""
        return xxh64(pa.array([default if n is None else n for n in self.names]))

    def take(self, rows: Any) -> Coded:
        """Some rows."""
        some = object.__new__(Coded)
        some.names, some.codes = self.names, self.codes[rows]
        return some


@dataclass(frozen=True)
class Events:
    """For every row: the index of its operation's invocation, its own index, its time, and the offset that it names."""

    op: Ints
    index: Ints
    time: Ints
    offset: Ints


def located(
    context: Context,
    cluster: Coded,
    topic: Coded,
    partition: Ints,
    *,
    events: Events | None = None,
    era: Ints | None = None,
) -> tuple[Ints, Ints, Ints]:
    """place, target and era of every row; place and target are 0 where topic or partition is unknown. The era is given,
    or follows from the events."""
    pair = cluster.codes * len(topic.names) + topic.codes
    origin = np.zeros(len(cluster.names) * len(topic.names), np.int64)
    eras = np.zeros(len(partition), np.int64) if era is None else era
    for code in np.unique(pair).tolist():
        here = cluster.names[code // len(topic.names)] or "A"
        name = topic.names[code % len(topic.names)] or ""
        origin[code] = xxh64(pa.array([context.topics.get((here, name), name)]))[0]
        windows = context.lives.get((here, name))
        if windows and events is not None:
            rows = np.flatnonzero(pair == code)
            eras[rows] = era_of(windows, events.op[rows], events.index[rows])
    if context.failbacks and events is not None:
        _branch(context, eras, cluster, topic, partition, events)
    known = (partition >= 0) & (topic.codes < len(topic.names) - 1)
    place = mixed(cluster.keys("A"), topic.keys(), partition, eras)
    target = mixed(origin[pair], partition)
    return np.where(known, place, 0), np.where(known, target, 0), eras


def _branch(context: Context, eras: Ints, cluster: Coded, topic: Coded, partition: Ints, events: Events) -> None:
    """Set the era of rows that refer to what a later failback discarded to that of the branch."""
    for (letter, name, number), failbacks in context.failbacks.items():
        here = cluster.among(letter, *((None,) if letter == "A" else ())) & topic.among(name) & (partition == number)
        for n in range(len(failbacks), 0, -1):
            at, cut = failbacks[n - 1]
            eras[here & (events.time < at) & (events.offset >= cut)] = -n


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


class _Rows:
    """Records of sends and polls, each with the event that it belongs to; columns in order of the history."""

    def __init__(self, context: Context, ops: pa.Table, records: pa.Table) -> None:
        action = Coded(records["action"])
        wanted = np.flatnonzero(action.among("send", "poll"))
        index, of = ints(ops["index"]), ints(records["op_index"])[wanted]
        at = np.searchsorted(index, of)
        found = at < len(index)
        found[found] = index[at[found]] == of[found]
        at, rows = at[found], wanted[found]
        kind, f = Coded(ops["type"]), Coded(ops["f"])
        invoked = kind.among("invoke")
        op = np.where(invoked, index, ints(ops["invoke_index"], index))
        time = ints(ops["time_ns"])
        cluster = Coded(ops["cluster"])
        txn = ops["txn"]
        stepped = txn.is_valid().to_numpy()
        named = mixed(xxh64(txn), cluster.keys("A")) if stepped.any() else np.zeros(len(op), np.int64)
        transaction = np.where(stepped, named, np.where(f.among("txn"), mixed(op), 0))
        by_default = ("read_committed", None) if context.read_committed_by_default else ("read_committed",)
        committed = Coded(ops["isolation"]).among(*by_default)
        bits = ~invoked * DONE | kind.bits(OK, "ok") | kind.bits(FAIL, "fail") | f.bits(WHOLE, "txn")
        decided, asked = _decided(context, named, stepped)
        bits |= stepped * STEPPED | decided
        asked = np.where(f.among("txn"), op, asked)
        first = np.where(committed & ~invoked, index, NEVER)
        seen = READ | Coded(ops["phase"]).bits(FINAL, "final") | committed * BY_COMMITTED

        value = records["value"].combine_chunks() if isinstance(records["value"], pa.ChunkedArray) else records["value"]
        self.index, self.op, self.time, self.txn = of[found], op[at], time[at], transaction[at]
        self.sent_bits, self.seen_bits = bits[at], seen[at]
        self.asked, self.first = asked[at], first[at]
        self.position = ints(records["position"])[rows]
        self.partition = ints(records["partition"], NONE)[rows]
        self.offset = ints(records["offset"], NONE)[rows]
        self.vh = xxh64(value)[rows]
        self.cluster, self.topic = cluster.take(at), Coded(records["topic"]).take(rows)
        self.place, self.target, self.era = located(
            context,
            self.cluster,
            self.topic,
            self.partition,
            events=Events(self.op, self.index, self.time, self.offset),
        )
        self.sent_bits = self.sent_bits | (self.era >= UNDECIDED) * np.int64(STRADDLES)
        self.line = np.where(self.place == 0, 0, mixed(Coded(ops["process"]).keys()[at], self.place))
        valued = records["value"].is_valid().to_numpy()[rows]
        send = action.among("send")[rows]
        self.sends = np.flatnonzero(send & valued & f.among("send", "txn")[at])
        polled = ~send & (f.among("poll", "txn") & ~invoked)[at]
        polled &= records["offset"].is_valid().to_numpy()[rows] & (self.place != 0)
        self.polls = np.flatnonzero(polled)
        self.reads = np.flatnonzero(polled & valued)


def ints(column: Any, default: Any = 0) -> Ints:
    """An integer column; nulls become the default (a number, or a column)."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    values: Ints = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if not array.null_count:
        return values
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), values, default)


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
    yield _wide(out)


def _wide(blocks: list[tuple[str, int, bytes]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [*batch(blocks).columns, *(pa.nulls(len(blocks), f.type) for f in ENDS)], schema=SCHEMA
    )


def by_value(buckets: int, kind: str, rows: Columns) -> Blocks:
    """Rows in the bucket of their value."""
    spread = (rows["vh"].view(np.uint64) >> np.uint64(33)).astype(np.int64)
    return pack(kind, rows, spread % buckets)


def by_place(buckets: int, rows: Columns) -> Blocks:
    """`at_offsets` of sends or reads, in the bucket of their place and block of offsets."""
    return pack("at_offsets", rows, _block(rows["place"], rows["offset"]) % buckets)


def by_blocks(buckets: int, gaps: Columns) -> Blocks:
    """`gaps` in the bucket of each block that they touch, or, where those are more than two, as `wide` in none."""
    first, last = np.maximum(gaps["before"], 0) >> BLOCK_BITS, gaps["offset"] >> BLOCK_BITS
    near = picked(gaps, last - first <= 1)
    yield from pack("gaps", near, _block(near["place"], near["offset"]) % buckets)
    both = picked(gaps, last - first == 1)
    yield from pack("gaps", both, _block(both["place"], np.maximum(both["before"], 0)) % buckets)
    yield from pack("wide", picked(gaps, last - first > 1))


def _block(place: Ints, offset: Ints) -> Ints:
    return mixed(place, offset >> BLOCK_BITS)


def stored_pass(context: Context) -> Map:
    """A function for `mapInArrow` over the records of the authoritative logs (columns cluster, topic, partition, era,
    offset, vh, aborted); gives rows of FIRST."""

    def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        held: list[pa.RecordBatch] = []
        for some in batches:
            held.append(some)
            if sum(len(b) for b in held) >= spans.SPAN_ROWS:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)

    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in pieces(batches):
            cluster, topic = Coded(some["cluster"]), Coded(some["topic"])
            partition, era = ints(some["partition"], NONE), ints(some["era"])
            place, target, _ = located(context, cluster, topic, partition, era=era)
            count = len(place)
            reads = {"vh": ints(some["vh"]), "place": place, "target": target, "offset": ints(some["offset"])}
            aborted = some["aborted"].to_numpy(zero_copy_only=False).astype(bool)
            bits = np.where(aborted, HELD_ABORTED, STORED)
            reads = {**reads, "txn": np.zeros(count, np.int64), "bits": bits, "first": np.full(count, NEVER)}
            there = by_place(context.buckets, picked(reads, ~aborted))
            yield _wide([*by_value(context.buckets, "reads", reads), *there])

    return scan


def combined_sends(rows: Columns) -> Columns:
    """One row per value and operation; its place is that of its completion, else that of any event."""
    order = np.lexsort((rows["bits"] & DONE, rows["op"], rows["vh"]))
    rows = picked(rows, order)
    starts = runs(rows["vh"], rows["op"])
    if len(starts) == len(order):
        return rows
    lasts = np.append(starts[1:], len(order)) - 1
    most = {n: np.maximum.reduceat(rows[n], starts) for n in ("offset", "txn", "ended", "asked")}
    placed = {n: np.maximum.reduceat(rows[n], starts) for n in ("place", "target", "line")}
    least = np.minimum.reduceat(np.where(rows["place"] == 0, np.iinfo(np.int64).max, rows["place"]), starts)
    confused = (placed["place"] != 0) & (least != placed["place"])
    known = rows["place"][lasts] != 0
    return {
        **{n: rows[n][starts] for n in ("vh", "op")},
        **most,
        **{n: np.where(known, rows[n][lasts], column) for n, column in placed.items()},
        "bits": np.bitwise_or.reduceat(rows["bits"], starts) | np.where(confused, CONFUSED, 0),
        "invoked": np.minimum.reduceat(rows["invoked"], starts),
    }


def combined_reads(rows: Columns) -> Columns:
    """One row per value, place, offset and transaction of the reader."""
    seen_at = mixed(rows["place"], rows["offset"], rows["txn"])
    order = np.lexsort((seen_at, rows["vh"]))
    rows, seen_at = picked(rows, order), seen_at[order]
    starts = runs(rows["vh"], seen_at)
    if len(starts) == len(order):
        return rows
    bits, first = np.bitwise_or.reduceat(rows["bits"], starts), np.minimum.reduceat(rows["first"], starts)
    return {**picked(rows, starts), "bits": bits, "first": first}


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
        *(most(READ), most(BY_COMMITTED), most(FINAL)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
