"""Follows the source's topics: new partitions and topics appear on the destination; topics that were deleted or
recreated on the source become FAILED; the new log is never appended to the old one.

New topics are mirrored by mirrors that were started for all topics; new partitions for every topic that is mirrored.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from harness.wire.metadata import TopicMeta
from mirrors.reference.server.audit import AuditLog, EventKind
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.mirrors import Mirrors
from mirrors.reference.server.model import PartitionKey, PartitionRecord
from mirrors.reference.server.pace import poll_interval
from mirrors.reference.server.states import PartitionState

_LOG = logging.getLogger(__name__)

S = PartitionState
MIRRORED_STATES: Final = frozenset({S.PREPARING, S.MIRRORING, S.PAUSING, S.PAUSED})


@dataclass(frozen=True, kw_only=True)
class TopicChanges:
    """Changes found at the source. grown: topics with partitions that are not mirrored yet. failed: partition → why."""

    grown: tuple[str, ...] = ()
    failed: Mapping[PartitionKey, str] = field(default_factory=dict)


def topic_changes(
    records: Iterable[PartitionRecord], source: Mapping[str, TopicMeta], *, missed_before: Collection[str]
) -> TopicChanges:
    """Compare the records of one mirror with all topics of its source.

    missed_before: topics that were not on the source some time ago either. One snapshot without a topic proves
    nothing: a broker that has just started may not know it yet.
    """
    known = list(records)
    mirrored = [record for record in known if record.state in MIRRORED_STATES]
    count = Counter(record.key.topic for record in known)  # those that were stopped or failed are not new
    failed: dict[PartitionKey, str] = {}
    for record in mirrored:
        key = record.key
        found = source.get(key.topic)
        if found is None:
            if key.topic in missed_before:
                failed[key] = f"topic {key.topic} is not on the source any more"
        elif _other(found.topic_id, record.source_topic_id):
            failed[key] = (
                f"topic {key.topic} was deleted and created again on the source: its ID was {record.source_topic_id} "
                f"and is {found.topic_id}"
            )
    alive = {record.key.topic for record in mirrored} - {key.topic for key in failed}
    grown = [n for n, c in count.items() if n in source and n in alive and len(source[n].partitions) > c]
    return TopicChanges(grown=tuple(sorted(grown)), failed=failed)


def missed_since(before: Mapping[str, float], missing: Iterable[str], *, now: float) -> dict[str, float]:
    """Topics that are missing, with the time of the first of the consecutive snapshots without them."""
    return {topic: before.get(topic, now) for topic in missing}


def _other(now: uuid.UUID, before: uuid.UUID) -> bool:
    unknown = uuid.UUID(int=0)
    return now != before and unknown not in (now, before)


class Discovery:
    """Compares every mirror with its source."""

    def __init__(self, mirrors: Mirrors, lifecycle: Lifecycle, audit: AuditLog, *, every_s: float) -> None:
        self._mirrors = mirrors
        self._life = lifecycle
        self._audit = audit
        self._every_s = every_s
        self._missed: dict[str, dict[str, float]] = {}  # mirror → topics missing in every snapshot since a time
        self._judged_at: dict[str, float] = {}  # time of the last source metadata that was compared

    async def poll(self) -> None:
        """Once over all mirrors. Raises WireError or MirrorError."""
        for mirror in list(self._mirrors.configs):
            await self._poll(mirror)

    async def _poll(self, mirror: str) -> None:
        life, every = self._life, self._every_s
        link = life.links[mirror]
        oldest = poll_interval(every, link.partitions)
        wanted = {topic.name: topic for topic in await self._mirrors.discover(mirror, at_most_age_s=oldest)}
        listed_at = link.refreshed_at or 0.0
        if self._judged_at.get(mirror) == listed_at:
            return
        self._judged_at[mirror] = listed_at
        own = [r for k, r in life.records.items() if k.mirror == mirror]
        mirrored = {record.key.topic for record in own}
        missed = missed_since(self._missed.get(mirror, {}), mirrored - link.topics.keys(), now=listed_at)
        self._missed[mirror] = missed
        before = {topic for topic, since in missed.items() if listed_at - since >= every}
        found = topic_changes(own, link.topics, missed_before=before)
        for key, why in found.failed.items():
            await self._fail(key, why)
        new = wanted.keys() - mirrored if self._mirrors.configs[mirror].all_topics else set()
        for name in [*found.grown, *sorted(new)]:
            if name in wanted and await self._mirrors.add_topic(mirror, wanted[name], only_new=True):
                change = "partitions" if name in mirrored else "created"
                self._audit.add(EventKind.TOPIC, mirror, topic=name, change=change)

    async def _fail(self, key: PartitionKey, why: str) -> None:
        life = self._life
        record = life.records[key]
        if record.owner != life.hub.me or record.state not in MIRRORED_STATES:
            return
        mirrored = life.mirrored(key)
        if mirrored is not None:
            await life.fail(mirrored, why)
        else:
            await life.save([replace(record, state=S.FAILED, error=why)])
        self._audit.add(EventKind.TOPIC, key.mirror, topic=key.topic, change="gone", partition=key.partition, why=why)
