"""The forms of the events of a JSONL history: fields, and what they become. docs/history-format.md shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class EventForm:
    """Fields of an f besides index, process, type, f and time, and what it becomes. For docs/history-format.md."""

    fs: str
    fields: str
    becomes: str


EVENTS: Final[tuple[EventForm, ...]] = (
    EventForm(
        "send",
        "cluster, topic, partition, value, offset, key, txn, client, pid, epoch, seq, leader_epoch, retry, error",
        "ops; op_records `send`",
    ),
    EventForm(
        "poll",
        "cluster, topic, partition, value = [[offset, value], …], isolation, group, txn, client, position,"
        " reset, replica, error",
        "ops; op_records `poll`, and one `position` (offset = position) when position is given or nothing was read",
    ),
    EventForm("txn_begin, txn_commit, txn_abort", "cluster, txn, error", "ops"),
    EventForm(
        "commit_offset, fetch_offset",
        "cluster, group, topic, partition, offset, processed, offset_epoch, error",
        "ops; op_records `commit`, `fetch` (leader_epoch = offset_epoch)",
    ),
    EventForm(
        "assign, subscribe, crash",
        "cluster, topic, partition, offset, group, error",
        "ops; op_records `assign` when topic is given",
    ),
    EventForm(
        "log_dump",
        "cluster, topic, partition, replica, log_start, leo, hw, lso, leader, leader_epoch, isr, mirror_of,"
        " source_topic, topic_id, value = [{offset, value, key, pid, pepoch, lepoch, seq, ctl, txn, timestamp, crc,"
        " crc_ok, coordinator_epoch}, …]",
        "records; batches (one per record); log_ends. look counts the dumps of that replica from 0; replica null:"
        " broker -1; leo absent: last offset + 1; ctl MIRROR_PID_RESET: control_type PID_RESET; transactional: with a"
        " txn, or before a COMMIT or ABORT of the same pid in that dump",
    ),
    EventForm("epochs", "cluster, topic, partition, leader_epoch, leader, isr", "log_ends (broker, log_end null)"),
    EventForm(
        "sync_group_offset, checkpoint",
        "cluster, group, topic, partition, offset, source_offset, kind, state, members",
        "group_offsets, event `sync`, `checkpoint`",
    ),
    EventForm(
        "mirror_start, mirror_stop, mirror_pause, mirror_resume, mirror_failback, failover",
        "cluster (or to), topic, source_topic, partition, mirror, source, state, source_offset, destination_offset,"
        " lag, error",
        "ops; mirror_states in state PREPARING, STOPPED, PAUSED, MIRRORING, PREPARING, STOPPED (or the state given),"
        " event `start`, `stop`, …; one row per partition that the history mentions when topic or partition is absent",
    ),
    EventForm(
        "mirror_state",
        "cluster, topic, source_topic, partition, mirror, source, state, source_offset, destination_offset, lag, error",
        "ops; mirror_states, event `look`",
    ),
    EventForm(
        "topic_map",
        "cluster, source, value = {name on the source: name on the cluster}",
        "topic_map and topic_maps of run.json; by default cluster is B and source the cluster before it in the chain",
    ),
    EventForm(
        "acl_create, acl_delete",
        "cluster, acl, error",
        "ops; op_records `target` (value = acl); acls, event `create`, `delete`, actor = process",
    ),
    EventForm(
        "acl_list", "cluster, value = [acl, …]", "acls, event `look`; an empty list is one row with binding null"
    ),
    EventForm(
        "create_topic, delete_topic",
        "cluster, topic, partition, config = {name: value}, error",
        "ops; op_records `target`; configs, event `create`, `delete`",
    ),
    EventForm(
        "alter_config",
        "cluster, topic, config = {name: value}, error",
        "ops; op_records `target`; configs, event `alter`, actor = process (our addition)",
    ),
    EventForm(
        "config_list",
        "cluster, topic, config = {name: value}",
        "configs, event `look` (our addition)",
    ),
    EventForm(
        "row",
        "table, row = {column: value}",
        "one row of that stored table, with the line's time where the row gives no time_ns; for what no f above can"
        " express: snapshots of groups, metrics, mirror_names, objects, object_refs, final_reads (our addition)",
    ),
    EventForm(
        "retention",
        "cluster, topic, partition, log_start",
        "ops; op_records `target` (offset = log_start); configs, event `retention`; log_ends (log_start alone)",
    ),
    EventForm(
        "any f of process nemesis…",
        "node, to, frm, topic, rpc, txn, cluster, …",
        "faults (all fields in params); an f of this table also has its effect listed here; stop_mm2, stop_mirror,"
        " kill_mm2, kill_mirror and start_mm2, start_mirror also mirror_states PAUSED and MIRRORING",
    ),
)
