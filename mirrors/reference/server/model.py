"""Values that all parts of the mirror share, and their JSON form. Frozen."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

from harness.core.errors import MirrorError
from harness.core.internal_topics import is_internal
from harness.wire.addresses import parse_addresses
from harness.wire.frames import WireError
from mirrors.reference.server.states import PartitionState, allowed


@dataclass(frozen=True, kw_only=True)
class MirrorConfig:
    """One mirror: its source and what it mirrors. Patterns are regular expressions that match whole names.

    source: bootstrap servers. peer: address of the admin API of the mirror in the other direction, for a failback.
    acls: which bindings are synced, a pattern for their one-line form (harness.wire.acls). all_topics: it was started
    for all topics, so topics that appear later are mirrored, too.
    """

    name: str
    source: str
    topics: str = ".*"
    exclude_topics: str = "$^"
    groups: str = ".*"
    exclude_groups: str = "$^"
    acls: str = ".*"
    exclude_configs: tuple[str, ...] = ()
    peer: tuple[str, ...] = ()
    all_topics: bool = False

    def check(self) -> None:
        """Raises MirrorError naming what cannot be used."""
        try:
            parse_addresses(self.source)
        except WireError as error:
            raise MirrorError(f"mirror {self.name}: source: {error}") from error
        for name in ("topics", "exclude_topics", "groups", "exclude_groups", "acls"):
            try:
                re.compile(getattr(self, name))
            except re.error as error:
                raise MirrorError(f"mirror {self.name}: {name} is not a regular expression: {error}") from error

    def wants(self, topic: str) -> bool:
        """Whether it mirrors a topic of this name: a user topic that matches the patterns, whatever it begins with."""
        if is_internal(topic) or re.fullmatch(self.exclude_topics, topic):
            return False
        return re.fullmatch(self.topics, topic) is not None

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MirrorConfig:
        """Raises TypeError for unknown names."""
        fixed = dict(values)
        for name in ("exclude_configs", "peer"):
            if name in fixed:
                fixed[name] = tuple(fixed[name])
        return cls(**fixed)


class PartitionKey(NamedTuple):
    """One mirrored partition: topics keep their names. A tuple: it is looked up thousands of times a second."""

    mirror: str
    topic: str
    partition: int


@dataclass(frozen=True, kw_only=True)
class PartitionRecord:
    """The state of one partition that survives a crash.

    step: the last finished step of a life cycle's sequence. source_epochs: (source epoch, source offset at which it
    began). empty: this process created it, and nothing was given to its followers yet. last_mirrored: destination
    offset after the last record that came from the source, set at a stop, at stopped_at_ms (wall clock).
    shifts: where destination offsets are not the source's (see epochs.OffsetShifts). source_cluster: its cluster ID.
    real_replicas: B's own brokers that hold it, in the order of preference. carry_on: it was mirrored when its stop was
    requested, so the stop may mirror on until the source has decided its transactions. fence: the fencing token, how
    often the partition has changed hands (see fencing).
    """

    key: PartitionKey
    state: PartitionState
    topic_id: uuid.UUID
    source_topic_id: uuid.UUID
    step: str = ""
    error: str = ""
    source_epochs: tuple[tuple[int, int], ...] = ()
    last_mirrored: int = -1
    last_mirrored_epoch: int = -1
    cut: int | None = None
    empty: bool = False
    stopped_at_ms: int = 0
    shifts: tuple[tuple[int, int], ...] = ()
    source_cluster: str = ""
    real_replicas: tuple[int, ...] = ()
    owner: int = -1
    fence: int = 0
    carry_on: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """As stored in the state topic."""
        values = {**asdict(self), "key": self.key._asdict()}
        values["topic_id"], values["source_topic_id"] = str(self.topic_id), str(self.source_topic_id)
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> PartitionRecord:
        """Raises ValueError, KeyError or TypeError for something else."""
        values = json.loads(data)
        values["key"] = PartitionKey(**values["key"])
        values["state"] = PartitionState(values["state"])
        values["topic_id"], values["source_topic_id"] = (
            uuid.UUID(values["topic_id"]),
            uuid.UUID(values["source_topic_id"]),
        )
        for name in ("source_epochs", "shifts"):
            values[name] = tuple((int(a), int(b)) for a, b in values.get(name, ()))
        values["real_replicas"] = tuple(values["real_replicas"])
        return cls(**values)


def rebased(record: PartitionRecord, known: PartitionRecord | None, now: PartitionRecord | None) -> PartitionRecord:
    """Merge a changed record with a concurrent change of the record that it was made from.

    record: made from `known`; now: the current record. Where both changed the state, `record`'s is kept only if a
    partition may go there from the other: a request to stop is not undone by the end of a preparation.
    """
    if known is None or now is None or now is known:
        return record
    changed = {
        f.name: getattr(record, f.name) for f in fields(record) if getattr(record, f.name) != getattr(known, f.name)
    }
    if "state" in changed and now.state is not known.state and not allowed(now.state, record.state):
        del changed["state"]
    return replace(now, **changed)
