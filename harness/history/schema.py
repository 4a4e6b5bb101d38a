"""The stored run, version 1: the Arrow schema of every table, each column documented.

A run is a folder: `run.json` and one folder of Parquet files per table. Every file is complete in itself and
appears under its final name only when it is whole, so that a reader may start while the run goes on.
docs/history-format.md is generated from this module.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Column:
    """One column: its name, Arrow type, whether it may be null, and what it means."""

    name: str
    type: pa.DataType
    doc: str
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """One table: what a row is, and its columns."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, with the format version in its metadata."""
        fields = [pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns]
        return pa.schema(fields, metadata={"shatterproof.format": str(FORMAT_VERSION), "table": self.name})


_I64, _I32, _I16, _STR, _BOOL = pa.int64(), pa.int32(), pa.int16(), pa.string(), pa.bool_()


def _c(name: str, kind: pa.DataType, doc: str, *, required: bool = False) -> Column:
    return Column(name, kind, doc, nullable=not required)


_TIME = _c("time_ns", _I64, "nanoseconds since the run began, one monotonic clock for all clusters", required=True)
_CLUSTER = _c("cluster", _STR, "A (source), B (destination), C (end of a chain)")
_TOPIC = _c("topic", _STR, "topic name on that cluster")
_PART = _c("partition", _I32, "partition number")
_BROKER = _c("broker", _I32, "broker id whose replica this is; -1 when the replica is not named (imported histories)")
_LOOK = _c(
    "look",
    _I32,
    "number of the snapshot of the clusters: evidence may be captured more than once, the last counts",
)

_PRODUCER = (
    _c("producer_id", _I64, "producer id of the batch, -1 without"),
    _c("producer_epoch", _I16, "producer epoch, -1 without"),
)

TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        Table(
            "ops",
            "one event of an operation",
            (
                _c("index", _I64, "position in the history, unique, increasing with time", required=True),
                _TIME,
                _c("process", _STR, "client, admin or mirror; may have several operations under way", required=True),
                _c("type", _STR, "invoke, ok, fail or info", required=True),
                _c("f", _STR, "what was done: send, poll, txn, …", required=True),
                _c(
                    "invoke_index",
                    _I64,
                    "on a completion: index of its invoke event, where the writer knows it;"
                    " its own index when it has none",
                ),
                _c("phase", _STR, "phase of the run"),
                _CLUSTER,
                _c("client", _STR, "client incarnation that acted (one producer or consumer object)"),
                _c("txn", _STR, "name of the transaction, unique over the run"),
                _c("group", _STR, "consumer group"),
                _c("isolation", _STR, "read_uncommitted or read_committed, of a poll"),
                _c("reset", _STR, "auto.offset.reset of the polling consumer, where it matters"),
                _c("error", _STR, "short error name (error table in docs), null when none"),
                _c("error_text", _STR, "the client's error message"),
                _c("replica", _I32, "broker that served a poll, where an imported history names it"),
                _c("retry", _BOOL, "the client sent these records before, where an imported history says so"),
            ),
        ),
        Table(
            "op_records",
            "one record sent or polled, or one group offset committed or fetched, or one partition that the operation"
            " was about, by an operation event",
            (
                _c("op_index", _I64, "index of the event in ops", required=True),
                _c("position", _I32, "order within the operation, from 0", required=True),
                _c(
                    "action",
                    _STR,
                    "send, poll, commit, fetch, assign, keep, position, rebalance or target",
                    required=True,
                ),
                _TOPIC,
                _PART,
                _c(
                    "offset", _I64, "offset acknowledged, read, committed, fetched or assigned; null when none is known"
                ),
                _c("value", _STR, "the record's unique value"),
                _c("key", _STR, "the record's key"),
                _c("leader_epoch", _I32, "leader epoch that the client received"),
                _c("producer_id", _I64, "producer id, where the client knows it"),
                _c("producer_epoch", _I16, "producer epoch, where the client knows it"),
                _c("sequence", _I32, "sequence number, where the client knows it"),
                _c("processed", _I64, "of a commit: offset of the last record the consumer had processed"),
            ),
        ),
        Table(
            "batches",
            "one record batch of one replica's log",
            (
                _CLUSTER,
                _BROKER,
                _LOOK,
                _TOPIC,
                _c("topic_id", _STR, "topic ID"),
                _PART,
                _c("base_offset", _I64, "offset of the batch's first record", required=True),
                _c("last_offset", _I64, "offset of the batch's last record", required=True),
                _c("leader_epoch", _I32, "partition leader epoch stored in the batch"),
                _c("crc", _I64, "CRC32C stored in the batch, unsigned"),
                _c("crc_ok", _BOOL, "whether the stored CRC32C is that of the batch's bytes"),
                *_PRODUCER,
                _c("base_sequence", _I32, "sequence of the first record, -1 without"),
                _c("records_count", _I32, "records in the batch"),
                _c("transactional", _BOOL, "transactional batch"),
                _c("control", _BOOL, "control batch"),
                _c(
                    "control_type",
                    _STR,
                    "COMMIT, ABORT, PID_RESET, … or TYPE_n when unknown; null if not control",
                ),
                _c("coordinator_epoch", _I32, "coordinator epoch of a transaction marker"),
                _c("timestamp", _I64, "largest timestamp, ms since 1970"),
                _c("size", _I32, "bytes in the log"),
                _c("compression", _STR, "none, gzip, snappy, lz4 or zstd"),
                _c("segment", _STR, "segment file the batch came from"),
                _c("position", _I64, "byte position in the segment file"),
                _c("txn", _STR, "transaction name, where an imported history names it"),
            ),
        ),
        Table(
            "records",
            "one record of one replica's log (control records included)",
            (
                _CLUSTER,
                _BROKER,
                _LOOK,
                _TOPIC,
                _PART,
                _c("offset", _I64, "offset", required=True),
                _c("key", _STR, "key as UTF-8 (invalid bytes replaced)"),
                _c("value", _STR, "value as UTF-8 (invalid bytes replaced)"),
                _c("value_hash", _I64, "64-bit hash of key and value bytes"),
                _c("headers", _STR, "headers as a JSON list of [key, value] pairs; null when none"),
                _c("timestamp", _I64, "ms since 1970"),
                _c("base_offset", _I64, "base offset of its batch"),
                _c("leader_epoch", _I32, "partition leader epoch of its batch"),
                *_PRODUCER,
                _c("sequence", _I32, "sequence of this record, -1 without"),
                _c("transactional", _BOOL, "from a transactional batch"),
                _c("control_type", _STR, "COMMIT, ABORT, PID_RESET, TYPE_n; null for a data record"),
                _c("txn", _STR, "transaction name, where an imported history names it"),
            ),
        ),
        Table(
            "log_ends",
            "one snapshot of one partition (one replica's view where broker is given)",
            (
                _CLUSTER,
                _BROKER,
                _LOOK,
                _TIME,
                _TOPIC,
                _PART,
                _c("log_start", _I64, "log start offset"),
                _c("log_end", _I64, "log end offset"),
                _c("high_watermark", _I64, "high watermark"),
                _c("last_stable", _I64, "last stable offset"),
                _c("leader", _I32, "leader's broker id, -1 without leader"),
                _c("leader_epoch", _I32, "leader epoch"),
                _c("isr", pa.list_(_I32), "in-sync replicas"),
                _c("replicas", pa.list_(_I32), "assigned replicas"),
                _c("mirror_of", _STR, "cluster letter this log mirrors, where an imported history says so"),
            ),
        ),
        Table(
            "captured_logs",
            "one replica's log that had to be captured, and whether all of it is in batches and records",
            (
                _CLUSTER,
                _BROKER,
                _LOOK,
                _TOPIC,
                _PART,
                _c("complete", _BOOL, "whether the whole log was copied and decoded", required=True),
                _c("why", _STR, "why not: one sentence that names the node or the file; null when complete"),
                _c("batches", _I64, "batches that were decoded from it"),
                _c("records", _I64, "records that were decoded from it"),
            ),
        ),
        Table(
            "final_reads",
            "one partition's final read by a fresh client",
            (
                _CLUSTER,
                _TOPIC,
                _PART,
                _TIME,
                _c("isolation", _STR, "read_uncommitted or read_committed"),
                _c("start_offset", _I64, "offset at which the read began (the log start)"),
                _c("target_offset", _I64, "highest offset known to exist + 1, which the read had to reach"),
                _c("position", _I64, "offset at which the read ended"),
                _c("complete", _BOOL, "whether position reached target", required=True),
                _c("error", _STR, "why it is not complete"),
            ),
        ),
        Table(
            "group_offsets",
            "one snapshot of (or one write to) one group's offset",
            (
                _CLUSTER,
                _TIME,
                _c("group", _STR, "group id"),
                _c("kind", _STR, "consumer or share"),
                _c("event", _STR, "look (a snapshot), sync (a mirror wrote it) or checkpoint (MM2's translation)"),
                _c("state", _STR, "group state"),
                _c("members", _I32, "members at that time"),
                _TOPIC,
                _PART,
                _c("offset", _I64, "committed offset"),
                _c("source_offset", _I64, "offset on the source it was translated from"),
                _c("leader_epoch", _I32, "committed leader epoch"),
                _c("metadata", _STR, "commit metadata"),
                _c("began_ns", _I64, "when the snapshot's request began; time_ns: when its answer came. Null: unknown"),
            ),
        ),
        Table(
            "mirror_states",
            "one snapshot of one mirror partition",
            (
                _c("mirror", _STR, "mirror name"),
                _CLUSTER,
                _TOPIC,
                _PART,
                _c("state", _STR, "PREPARING, MIRRORING, PAUSING, PAUSED, STOPPING, STOPPED, FAILED, UNKNOWN"),
                _c(
                    "source_offset",
                    _I64,
                    "next source offset to be mirrored (STOPPED: the recorded cut)",
                ),
                _c(
                    "destination_offset",
                    _I64,
                    "destination log end (STOPPED: the recorded cut on the destination)",
                ),
                _c("lag", _I64, "records not yet mirrored"),
                _c(
                    "error",
                    _STR,
                    "error of a FAILED partition, or what a mirror reports of one (discarded offsets)",
                ),
                _TIME,
                _c(
                    "event",
                    _STR,
                    "look (a snapshot), log (a record of the mirror's own state topic, in its order), or the"
                    " acknowledged operation that caused the state: start, stop, pause, resume, failover; null: look",
                ),
            ),
        ),
        Table(
            "acls",
            "one ACL binding in one snapshot, or one change of it",
            (
                _CLUSTER,
                _TIME,
                _LOOK,
                _c("event", _STR, "look, create or delete"),
                _c("actor", _STR, "who changed it: admin or mirror; null for a snapshot"),
                _c(
                    "binding",
                    _STR,
                    "the binding as one line, e.g. DENY User:alice ALL TOPIC:*; null: an empty snapshot",
                ),
            ),
        ),
        Table(
            "configs",
            "one topic configuration entry in one snapshot, or one change of it",
            (
                _CLUSTER,
                _TIME,
                _LOOK,
                _c("event", _STR, "look, alter, create, delete, or retention (value: the new log start offset)"),
                _c("actor", _STR, "who changed it; null for a snapshot"),
                _TOPIC,
                _c("name", _STR, "configuration key"),
                _c("value", _STR, "value"),
            ),
        ),
        Table(
            "mirror_names",
            "one attempt of one principal to learn of mirrors",
            (
                _CLUSTER,
                _TIME,
                _c("principal", _STR, "who asked, e.g. User:alice", required=True),
                _c("entitled", _BOOL, "whether that principal has rights on mirrors", required=True),
                _c("surface", _STR, "what was asked: list, describe, topic_config, error_text, metrics, …"),
                _c("mirror", _STR, "mirror name that the answer contained; null: none"),
            ),
        ),
        Table(
            "metrics",
            "one snapshot of one metric of one node",
            (
                _CLUSTER,
                _c("node", _STR, "node, as in faults.target", required=True),
                _TIME,
                _c(
                    "name",
                    _STR,
                    "memory_bytes, fetcher_threads, fetch_response_max_bytes, mirror_partitions, or another",
                    required=True,
                ),
                _c("value", _I64, "its value, in the unit that the name ends with", required=True),
            ),
        ),
        Table(
            "objects",
            "one object of an object store in one snapshot, or one change of it; time-ordered snapshots follow cleaning"
            " cycles",
            (
                _CLUSTER,
                _TIME,
                _LOOK,
                _c("event", _STR, "look, upload or delete", required=True),
                _c("object", _STR, "key in the store; null: an empty snapshot"),
                _c("size", _I64, "bytes"),
                _c("created_ns", _I64, "when it was uploaded, on the run's clock; null: unknown"),
                _c("cycle", _I32, "cleaning cycles that had ended by then"),
            ),
        ),
        Table(
            "object_refs",
            "one reference of the metadata to an object: when it was added, or dropped",
            (
                _CLUSTER,
                _TIME,
                _c(
                    "event",
                    _STR,
                    "commit (a batch was registered), drop (metadata forgot the object), epoch (a broker registered"
                    " again: broker and broker_epoch), txn (a transaction became visible: txn)",
                    required=True,
                ),
                _c("accepted", _BOOL, "of a commit: whether the metadata took it; null: yes"),
                _c("object", _STR, "key in the store"),
                _TOPIC,
                _PART,
                _c("base_offset", _I64, "first offset of the batch"),
                _c("last_offset", _I64, "last offset of the batch"),
                _BROKER,
                _c("broker_epoch", _I64, "broker epoch under which it was uploaded"),
                _c("txn", _STR, "transaction name"),
            ),
        ),
        Table(
            "faults",
            "one step of one fault",
            (
                _c("fault_id", _I32, "number in the schedule", required=True),
                _c("name", _STR, "nemesis", required=True),
                _c("cluster", _STR, "A, B, mirror or link"),
                _c("target", _STR, "node, link or partition that was hit, resolved at injection"),
                _c("action", _STR, "inject, bit (its proof), heal, skip", required=True),
                _TIME,
                _c("ok", _BOOL, "whether the step succeeded"),
                _c("result", _STR, "what was seen"),
                _c("params", _STR, "parameters as JSON"),
            ),
        ),
    )
}
