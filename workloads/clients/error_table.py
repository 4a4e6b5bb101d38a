"""The error table: which Kafka client errors are definite, and which end a client.

`fail` means that it did not happen, `info` that it may have happened or may still happen. A wrong `fail` produces a
false anomaly, a wrong `info` only hides one; so `info` is the default, and every `fail` has its reason in the row.

The meaning of a row depends on what the client was doing (`Context`):

- `DELIVERY`, a delivery report. librdkafka retries by itself, and a report has only the answer to the *last*
  attempt: a record that timed out once and was then refused may well be in the log. The library knows
  (message status NOT_PERSISTED or POSSIBLY_PERSISTED), but confluent-kafka does not expose it. A broker's refusal
  is therefore a `fail` only if there was one attempt (`only_attempt`). The caller knows that from the age of the
  record: a retry waits at least 0.8 × `retry.backoff.ms`, so a younger record was sent once.
- `ENQUEUE`, an exception of `produce()` itself: the record never left the process, always `fail`.
- `TXN_BEGIN`, init and begin: nothing was written, always `fail`.
- `TXN_COMMIT`, always `info`: the coordinator may have stored the decision before it, or its answer, failed. Only
  a successful abort makes it a `fail` (see workloads.clients.transactions).
- `TXN_ABORT`, an abort that failed although no commit was tried. That transaction cannot be committed any more: it
  times out, or the next producer with its transactional.id aborts it. Always `fail`.
- `POLL` and `QUERY`, reads: they change nothing in the log, and records that were not returned were not read. Always
  `fail`.

It cannot see: a broker that answers with a code it should not have used. `_MSG_TIMED_OUT` hides the last real error, so
a record that never left the queue is `info`, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from harness.history.ops import OpType


class Context(StrEnum):
    """What the client was doing when the error occurred."""

    ENQUEUE = "enqueue"
    DELIVERY = "delivery"
    TXN_BEGIN = "txn_begin"
    TXN_COMMIT = "txn_commit"
    TXN_ABORT = "txn_abort"
    POLL = "poll"
    QUERY = "query"


@dataclass(frozen=True, slots=True)
class Row:
    """One error: `type` of a delivery report for its only attempt, and whether the client must be replaced."""

    name: str
    type: OpType
    replace_client: bool
    why: str


@dataclass(frozen=True, slots=True)
class Classified:
    """The meaning of an error for the operation (`type`) and for its client; `name` goes into `ops.error`."""

    type: OpType
    replace_client: bool
    name: str


_FAIL, _INFO = OpType.FAIL, OpType.INFO

READ_ONLY_TOPIC: Final = 134  # KIP-1279; librdkafka 2.16 has no name for it
_UNNAMED: Final = {READ_ONLY_TOPIC: "READ_ONLY_TOPIC"}

_TABLE: tuple[tuple[OpType, bool, str, str], ...] = (
    # refused before the append, the client stays
    (
        _FAIL,
        False,
        "not authorized, checked before the append",
        (
            "TOPIC_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED "
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED SASL_AUTHENTICATION_FAILED"
        ),
    ),
    (
        _FAIL,
        False,
        "the topic or partition, or the requested setting, does not exist or is invalid",
        (
            "TOPIC_EXCEPTION INVALID_REPLICATION_FACTOR INVALID_PARTITIONS UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID "
            "_UNKNOWN_TOPIC _UNKNOWN_PARTITION"
        ),
    ),
    (
        _FAIL,
        False,
        "the record itself is refused, before the append",
        (
            "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_MSG_SIZE INVALID_RECORD INVALID_TIMESTAMP "
            "INVALID_REQUIRED_ACKS UNSUPPORTED_FOR_MESSAGE_FORMAT UNSUPPORTED_COMPRESSION_TYPE"
        ),
    ),
    (_FAIL, False, "a mirrored topic accepts no writes (KIP-1279)", "READ_ONLY_TOPIC"),
    (_FAIL, False, "the ISR was too small and nothing was appended", "NOT_ENOUGH_REPLICAS"),
    (_FAIL, False, "the epoch is too old; nothing was appended", "INVALID_PRODUCER_EPOCH"),
    (_FAIL, False, "an answer to an administrative request, not to a write", "NOT_CONTROLLER BROKER_NOT_AVAILABLE"),
    (_FAIL, False, "the local queue was full; the record was not accepted", "_QUEUE_FULL"),
    (_FAIL, False, "the coordinator requires an abort; nothing was appended", "TRANSACTION_ABORTABLE"),
    (
        _FAIL,
        False,
        "the group's coordinator accepts no offsets from this member (any more), or at this time",
        (
            "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS STALE_MEMBER_EPOCH FENCED_MEMBER_EPOCH "
            "INVALID_GROUP_ID GROUP_ID_NOT_FOUND"
        ),
    ),
    # refused before the append, and the client is unusable
    (
        _FAIL,
        True,
        "a newer producer took over; nothing was appended",
        "PRODUCER_FENCED _FENCED FENCED_INSTANCE_ID",
    ),
    (_FAIL, True, "the broker expected another sequence; nothing was appended", "OUT_OF_ORDER_SEQUENCE_NUMBER"),
    (
        _FAIL,
        True,
        "the transaction is in an error state; nothing was appended",
        "INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING TRANSACTION_COORDINATOR_FENCED _STATE",
    ),
    # may have happened
    (
        _INFO,
        False,
        "time-out: it may have been sent and appended",
        "_MSG_TIMED_OUT _TIMED_OUT _TIMED_OUT_QUEUE REQUEST_TIMED_OUT",
    ),
    (
        _INFO,
        False,
        "the connection was lost with the answer",
        "_TRANSPORT _ALL_BROKERS_DOWN NETWORK_EXCEPTION _RESOLVE _SSL _AUTHENTICATION",
    ),
    (
        _INFO,
        False,
        "can come after the append (KAFKA-13574)",
        "NOT_LEADER_FOR_PARTITION LEADER_NOT_AVAILABLE FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH",
    ),
    (
        _INFO,
        False,
        "appended, but not on enough replicas",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND _ISR_INSUFF",
    ),
    (_INFO, False, "an earlier attempt was appended", "DUPLICATE_SEQUENCE_NUMBER"),
    (_INFO, False, "the broker failed in the middle", "UNKNOWN KAFKA_STORAGE_ERROR"),
    (
        _INFO,
        False,
        "purged here: a record in the queue may be waiting for its second attempt",
        "_PURGE_QUEUE _PURGE_INFLIGHT",
    ),
    # may have happened, and the client is unusable
    (
        _INFO,
        True,
        "the client is in a fatal state, or gone; earlier attempts are unknown",
        "_FATAL _DESTROY _CRIT_SYS_RESOURCE _GAPLESS_GUARANTEE _INCONSISTENT UNKNOWN_PRODUCER_ID",
    ),
    (_INFO, True, "the group reassigned this client's partitions", "_MAX_POLL_EXCEEDED _ASSIGNMENT_LOST"),
)

ROWS: Final[dict[str, Row]] = {
    name: Row(name, type_, replace, why) for type_, replace, why, names in _TABLE for name in names.split()
}
"""Error name → row. A name that is not here is `info` and keeps its client."""

_ALWAYS_FAIL: Final = frozenset(
    {Context.ENQUEUE, Context.TXN_BEGIN, Context.TXN_ABORT, Context.POLL, Context.QUERY},
)
# Harmless to a reader: it stays in use although a producer with the same error would not.
_HARMLESS_TO_READERS: Final = frozenset({"_STATE", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_TXN_STATE"})


def error_name(error: KafkaError) -> str:
    """Its short name, as in `ROWS`: the client's, or this table's for a code that the client has no name for."""
    return _UNNAMED.get(error.code()) or str(error.name())


def kafka_error(error: BaseException) -> KafkaError | None:
    """The Kafka error in an exception of the client; None when it is about something else.

    confluent-kafka raises a *fatal* error of the client from whichever call happens to serve callbacks (poll, flush,
    consume, commit). When another callback was due at that moment it is the cause of a SystemError, or is lost in a
    SystemError without any cause: then it is named `_FATAL`, and only librdkafka's log has the reason.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, KafkaException) and seen.args and isinstance(seen.args[0], KafkaError):
            return seen.args[0]
        last, seen = seen, seen.__cause__ or seen.__context__
    if isinstance(last, SystemError):
        return KafkaError(KafkaError._FATAL, f"fatal error lost in a callback: {last}", fatal=True)
    return None


CLIENT_ERRORS: Final = (KafkaException, SystemError)
"""Exceptions to catch around a client's calls, and to pass to `kafka_error` (re-raise when it finds none)."""


def classify(error: KafkaError, *, context: Context, only_attempt: bool = False) -> Classified:
    """The meaning of `error` for an operation in `context`.

    only_attempt: for a delivery report, whether the record was certainly sent no more than once.
    A fatal error always ends its client.
    """
    name = error_name(error)
    row = ROWS.get(name)
    replace = bool(error.fatal()) or (row is not None and row.replace_client)
    if context in _ALWAYS_FAIL:
        if context in (Context.POLL, Context.QUERY) and name in _HARMLESS_TO_READERS:
            replace = bool(error.fatal())
        return Classified(OpType.FAIL, replace, name)
    if context is Context.TXN_COMMIT or row is None or not only_attempt:
        return Classified(OpType.INFO, replace, name)
    return Classified(row.type, replace, name)
