"""The administration of Cluster Mirroring (KIP-1279): the one table of its requests, responses and records.

No release of Kafka has it. The table is that of builds of the authors' public branch (4.2.0-SNAPSHOT): all requests in
version 0. For a build whose schema has a field more or less, add or delete that line here. Keys 97, 100 and 101 are
between brokers and controllers, and are not in the table.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from harness.wire.entity_table import (
    Entity,
    EntityError,
    Int8,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    decode_whole,
    encode,
    tagged,
)

CREATE, START, STOP, LIST, DESCRIBE, PAUSE, RESUME, DELETE = 94, 95, 96, 98, 99, 102, 103, 104

STATE_TOPIC: Final = "__mirror_state"
CONFIG_RESOURCE: Final = 64  # CLUSTER_MIRROR, of DescribeConfigs and IncrementalAlterConfigs
ACL_RESOURCE: Final = 8  # CLUSTER_MIRROR, of ACLs
LEVEL_FEATURE: Final = "mirror.version"


class MirrorErrorCode(IntEnum):
    """Error codes that kio does not have; 135 is not known."""

    READ_ONLY_TOPIC = 134
    CLUSTER_MIRROR_ALREADY_EXISTS = 136
    UNKNOWN_CLUSTER_MIRROR = 137
    TOPIC_ALREADY_IN_CLUSTER_MIRROR = 138
    TOPIC_NOT_IN_CLUSTER_MIRROR = 139
    MIRROR_TOPIC_ALREADY_PAUSED = 140
    MIRROR_TOPIC_NOT_PAUSED = 141
    MIRROR_TOPIC_BEING_STOPPED = 142
    CLUSTER_MIRROR_NOT_EMPTY = 143
    CLUSTER_MIRROR_AUTHORIZATION_FAILED = 144
    INVALID_MIRROR_STATE = 145
    MIRROR_TOPIC_NOT_STOPPED = 146


class State(IntEnum):
    """States of a mirror partition; in responses they are these names, in records these numbers."""

    UNKNOWN = -1
    LOG_TRUNCATION = 0
    EPOCH_FENCING = 1
    MIRRORING = 2
    PAUSING = 3
    PAUSED = 4
    STOPPING = 5
    STOPPED = 6
    FAILED = 7


# --- requests and responses ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClusterMirrorConfig(Entity):
    """One setting of a mirror."""

    name: str
    value: str | None


@dataclass(frozen=True, kw_only=True)
class CreateClusterMirrorRequest(Request, key=CREATE):
    """To any broker of the destination. Without `bootstrap.servers` and `mirror.source.cluster.id`: error 42."""

    mirror_name: str
    config: tuple[ClusterMirrorConfig, ...]


@dataclass(frozen=True, kw_only=True)
class CreateClusterMirrorResponse(Response, key=CREATE):
    """Then the partitions of `__mirror_state` need leaders before the mirror can be used."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None


@dataclass(frozen=True, kw_only=True)
class StartedTopic(Entity):
    """The source's topic id and partitions; with id None the topic is made at the next refresh of metadata."""

    topic_id: uuid.UUID | None
    topic_name: str
    num_partitions: Int32


@dataclass(frozen=True, kw_only=True)
class StartMirrorTopicsRequest(Request, key=START):
    """Valid from STOPPED and UNKNOWN."""

    mirror_name: str
    topics: tuple[StartedTopic, ...]
    include_patterns: tuple[str, ...] = tagged(0, ())
    exclude_patterns: tuple[str, ...] = tagged(1, ())
    state_validation_offset: Int64 = -1


@dataclass(frozen=True, kw_only=True)
class TopicResult(Entity):
    """What became of the request for one topic."""

    name: str
    error_code: Int16
    error_message: str | None = None


@dataclass(frozen=True, kw_only=True)
class TopicsResponse(Response):
    """Common to the four requests that name topics."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    topics: tuple[TopicResult, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StartMirrorTopicsResponse(TopicsResponse, key=START):
    """Answers 0 for a mirror that does not exist, too, and leaves half a mirror behind."""


@dataclass(frozen=True, kw_only=True)
class NamedTopic(Entity):
    """A topic of the destination."""

    topic_name: str


@dataclass(frozen=True, kw_only=True)
class StopMirrorTopicsRequest(Request, key=STOP):
    """Every partition has to be MIRRORING or PAUSED, else error 145."""

    mirror_name: str
    topics: tuple[NamedTopic, ...]
    patterns: tuple[str, ...] = tagged(0, ())
    state_validation_offset: Int64 = -1


@dataclass(frozen=True, kw_only=True)
class StopMirrorTopicsResponse(TopicsResponse, key=STOP):
    """Answered when the stop has begun."""


@dataclass(frozen=True, kw_only=True)
class PauseMirrorTopicsRequest(Request, key=PAUSE):
    """Valid from MIRRORING."""

    mirror_name: str
    topics: tuple[NamedTopic, ...]
    state_validation_offset: Int64 = -1


@dataclass(frozen=True, kw_only=True)
class PauseMirrorTopicsResponse(TopicsResponse, key=PAUSE):
    """Answered when the pause has begun."""


@dataclass(frozen=True, kw_only=True)
class ResumeMirrorTopicsRequest(Request, key=RESUME):
    """Valid from PAUSED."""

    mirror_name: str
    topics: tuple[NamedTopic, ...]
    state_validation_offset: Int64 = -1


@dataclass(frozen=True, kw_only=True)
class ResumeMirrorTopicsResponse(TopicsResponse, key=RESUME):
    """Answered when the resumption has begun."""


@dataclass(frozen=True, kw_only=True)
class DeleteClusterMirrorRequest(Request, key=DELETE):
    """All topics have to be STOPPED."""

    mirror_name: str
    state_validation_offset: Int64 = -1


@dataclass(frozen=True, kw_only=True)
class DeleteClusterMirrorResponse(Response, key=DELETE):
    """Its answer."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None


@dataclass(frozen=True, kw_only=True)
class ListClusterMirrorsRequest(Request, key=LIST):
    """To any broker."""

    include_topic_names: bool = False


@dataclass(frozen=True, kw_only=True)
class ListedMirror(Entity):
    """One mirror."""

    mirror_name: str
    source_bootstrap: str
    source_cluster_id: str = ""
    topic_count: Int32 = 0
    topic_names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ListClusterMirrorsResponse(Response, key=LIST):
    """All mirrors of this destination."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    mirrors: tuple[ListedMirror, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EpochLookup(Entity):
    """Partitions whose last mirror epochs are wanted."""

    topic_id: uuid.UUID | None
    partitions: tuple[Int32, ...]


@dataclass(frozen=True, kw_only=True)
class DescribeClusterMirrorsRequest(Request, key=DESCRIBE):
    """To every broker: the leader's row counts. cluster_id: of the source, with lookups of last mirror epochs."""

    mirror_names: tuple[str, ...]
    include_authorized_operations: bool = False
    cluster_id: str | None = tagged(0, None)
    last_mirror_epoch_lookups: tuple[EpochLookup, ...] = tagged(1, ())


@dataclass(frozen=True, kw_only=True)
class DescribedPartition(Entity):
    """Offsets are -1 unless it is MIRRORING. source_offset: the source's high watermark at the last fetch."""

    partition_index: Int32
    source_offset: Int64 = -1
    destination_offset: Int64 = -1
    lag: Int64 = -1
    state_value: str
    retry_attempt: Int16 = 0
    error_message: str | None = None


@dataclass(frozen=True, kw_only=True)
class DescribedTopic(Entity):
    """Partitions of one topic that this broker knows."""

    topic_name: str
    partitions: tuple[DescribedPartition, ...]


@dataclass(frozen=True, kw_only=True)
class DescribedMirror(Entity):
    """One mirror."""

    error_code: Int16
    mirror_name: str
    authorized_operations: Int32 = -2147483648
    topics: tuple[DescribedTopic, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FoundEpoch(Entity):
    """The epoch of the last mirrored batch; -1 where there is none."""

    partition_index: Int32
    last_mirror_epoch: Int32 = -1


@dataclass(frozen=True, kw_only=True)
class FoundEpochs(Entity):
    """One topic's."""

    topic_id: uuid.UUID | None
    partitions: tuple[FoundEpoch, ...]


@dataclass(frozen=True, kw_only=True)
class DescribeClusterMirrorsResponse(Response, key=DESCRIBE):
    """What one broker knows."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    mirrors: tuple[DescribedMirror, ...] = ()
    lookup_results: tuple[FoundEpochs, ...] = tagged(0, ())


PAYLOADS: Final[Mapping[int, tuple[type[Request], type[Response]]]] = {
    CREATE: (CreateClusterMirrorRequest, CreateClusterMirrorResponse),
    START: (StartMirrorTopicsRequest, StartMirrorTopicsResponse),
    STOP: (StopMirrorTopicsRequest, StopMirrorTopicsResponse),
    LIST: (ListClusterMirrorsRequest, ListClusterMirrorsResponse),
    DESCRIBE: (DescribeClusterMirrorsRequest, DescribeClusterMirrorsResponse),
    PAUSE: (PauseMirrorTopicsRequest, PauseMirrorTopicsResponse),
    RESUME: (ResumeMirrorTopicsRequest, ResumeMirrorTopicsResponse),
    DELETE: (DeleteClusterMirrorRequest, DeleteClusterMirrorResponse),
}
"""API key → (request, response), all of version 0."""

# --- records ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StateKey(Entity):
    """Key of both types of record in `__mirror_state`, after the type."""

    __flexible__ = False
    mirror_name: str
    topic_id: uuid.UUID | None
    partition: Int32


@dataclass(frozen=True, kw_only=True)
class LastMirrorEpochsValue(Entity):
    """Value of a record of type 1, after the version."""

    last_mirror_epoch: Int32


@dataclass(frozen=True, kw_only=True)
class MirrorPartitionStateValue(Entity):
    """Value of a record of type 2, after the version. States are numbers of `State`."""

    state: Int8
    previous_state: Int8 = 16
    retry_attempt: Int16 = 0
    error_message: str | None = None


@dataclass(frozen=True, kw_only=True)
class MirrorPidResetRecord(Entity):
    """Value of a control record of type 7."""

    version: Int16 = 0
    source_cluster_id: str


LAST_EPOCHS, PARTITION_STATE = 1, 2
_VALUES: Final[Mapping[int, type[LastMirrorEpochsValue] | type[MirrorPartitionStateValue]]] = {
    LAST_EPOCHS: LastMirrorEpochsValue,
    PARTITION_STATE: MirrorPartitionStateValue,
}
_PREFIX: Final = struct.Struct(">h")
StateValue = LastMirrorEpochsValue | MirrorPartitionStateValue


def encode_state(key: StateKey, value: StateValue) -> tuple[bytes, bytes]:
    """A record of `__mirror_state`: key after its type, value after version 0."""
    record_type = LAST_EPOCHS if isinstance(value, LastMirrorEpochsValue) else PARTITION_STATE
    return _PREFIX.pack(record_type) + encode(key), _PREFIX.pack(0) + encode(value)


def decode_state(key: bytes, value: bytes | None) -> tuple[int, StateKey, StateValue | None]:
    """(type, key, value) of a record of `__mirror_state`; None deletes. Raises: EntityError for an unknown type."""
    if len(key) < _PREFIX.size or (value is not None and len(value) < _PREFIX.size):
        raise EntityError(f"a record of {STATE_TOPIC} is cut off")
    record_type: int = _PREFIX.unpack_from(key)[0]
    if record_type not in _VALUES:
        raise EntityError(f"a record of {STATE_TOPIC} has type {record_type}, which is not known")
    decoded = decode_whole(StateKey, key, _PREFIX.size)
    if value is None:
        return record_type, decoded, None
    return record_type, decoded, decode_whole(_VALUES[record_type], value, _PREFIX.size)
