"""The vocabulary of a history: operation events, in the sense of Jepsen's histories.

An operation is invoked, and later completes as `ok` (it happened), `fail` (it did not happen) or `info`
(it may have happened, or may still happen). Our own processes are single-threaded: they have at most one operation
under way, and after `info` never act again under the same name. Processes of imported histories may have several
under way, as Kafka clients do.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class OpType(StrEnum):
    """The four kinds of event."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class F(StrEnum):
    """The function of an operation (column `f` of `ops`)."""

    SEND = "send"  # one or more records outside a transaction
    POLL = "poll"
    TXN = "txn"  # begin, records, and commit (ok) or abort (fail) as one operation
    TXN_BEGIN = "txn_begin"  # the steps of a transaction as operations of their own
    TXN_COMMIT = "txn_commit"
    TXN_ABORT = "txn_abort"
    ASSIGN = "assign"
    SUBSCRIBE = "subscribe"
    COMMIT_OFFSET = "commit_offset"
    FETCH_OFFSET = "fetch_offset"
    CRASH = "crash"  # the client is thrown away and replaced
    MIRROR_START = "mirror_start"
    MIRROR_STOP = "mirror_stop"
    MIRROR_PAUSE = "mirror_pause"
    MIRROR_RESUME = "mirror_resume"
    MIRROR_FAILBACK = "mirror_failback"
    MIRROR_STATE = "mirror_state"
    FAILOVER = "failover"
    CREATE_TOPIC = "create_topic"
    DELETE_TOPIC = "delete_topic"
    RETENTION = "retention"  # records below an offset were expired or deleted
    ACL_CREATE = "acl_create"
    ACL_DELETE = "acl_delete"
    ALTER_CONFIG = "alter_config"


class Action(StrEnum):
    """The role of one record in an operation (column `action` of `op_records`)."""

    SEND = "send"
    POLL = "poll"
    COMMIT = "commit"  # an offset committed for a group
    FETCH = "fetch"  # an offset fetched for a group
    ASSIGN = "assign"  # where a consumer begins to read (of `assign` operations); offset null: at the log start
    KEEP = "keep"  # a partition that stays assigned, and keeps its position (of `assign` operations)
    POSITION = "position"  # a consumer's position after a poll that reports it (imported histories)
    REBALANCE = "rebalance"  # a partition whose assignment changed during the operation
    TARGET = "target"  # what an administrative operation acted on: topic, partition, offset, value (an ACL binding)


class Phase(StrEnum):
    """The phase of the run to which an event belongs."""

    PROVISION = "provision"
    WARM_UP = "warm_up"
    LOAD = "load"
    HEAL = "heal"
    SCENARIO = "scenario"
    SETTLE = "settle"
    FINAL = "final"
    EVIDENCE = "evidence"


class OpRecord(NamedTuple):
    """One record (or one group offset) of an operation event. `None` where it is not known.

    A tuple, not a dataclass: millions are made on the hot path of the recorder.
    """

    action: str
    topic: str
    partition: int | None
    offset: int | None = None
    value: str | None = None
    key: str | None = None
    leader_epoch: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    sequence: int | None = None
    processed: int | None = None
