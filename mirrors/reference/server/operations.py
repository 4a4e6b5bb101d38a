"""Administrative operations on mirrors. A request that does not fit a partition's state is refused, changing nothing.

Every process answers for the partitions that it has; with several processes, ask each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from harness.core.errors import MirrorError
from mirrors.reference.server.describing import Describing, MirrorRow
from mirrors.reference.server.guard import Guard
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.mirrors import Mirrors
from mirrors.reference.server.model import MirrorConfig, PartitionKey, PartitionRecord
from mirrors.reference.server.states import ENDED, PartitionState
from mirrors.reference.server.steps import STEPS, CrashPoints

S = PartitionState

STARTABLE: Final = frozenset({S.STOPPED, S.FAILED, S.PREPARING, S.MIRRORING})
STOPPABLE: Final = frozenset({S.PREPARING, S.MIRRORING, S.PAUSING, S.PAUSED, S.FAILED, S.STOPPED})


class UnknownMirrorError(MirrorError):
    """There is no mirror, or topic of a mirror, of this name."""


def refuse_unless(records: Iterable[PartitionRecord], states: Collection[PartitionState], what: str) -> None:
    """Raises MirrorError naming the first partition that is in none of these states."""
    for record in records:
        if record.state not in states:
            key = record.key
            raise MirrorError(
                f"{key.topic}-{key.partition} of mirror {key.mirror} is {record.state}, so it cannot be {what}; "
                f"it could be when {', '.join(sorted(states))}"
            )


class Operations:
    """See the module."""

    def __init__(self, mirrors: Mirrors, lifecycle: Lifecycle, guard: Guard, crash: CrashPoints) -> None:
        self._mirrors = mirrors
        self._life = lifecycle
        self._guard = guard
        self._crash = crash
        self._describing = Describing(lifecycle)

    def mirrors(self) -> dict[str, MirrorConfig]:
        """By name."""
        return dict(self._mirrors.configs)

    async def create(self, config: MirrorConfig) -> None:
        """A new mirror, without topics yet."""
        await self._life.until_not_fenced()
        await self._mirrors.create(config)

    async def delete(self, mirror: str) -> None:
        """Forget a mirror whose partitions are all stopped, including its last mirrored offsets."""
        self._mirror(mirror)
        await self._life.until_not_fenced()
        records = self._records(mirror, None)
        refuse_unless(records, ENDED, "deleted")
        for record in records:
            mirrored = self._life.mirrored(record.key)
            if mirrored is not None and mirrored.led.leading:
                key = record.key
                raise MirrorError(
                    f"{key.topic}-{key.partition} of mirror {key.mirror} is {record.state} and still led by the mirror,"
                    " so it cannot be deleted; stop it first"
                )
        await self._guard(sorted({record.key.topic for record in records}), False)
        await self._life.store.delete(records)
        for record in records:
            self._life.records.pop(record.key, None)
        await self._mirrors.forget(mirror)

    async def start(self, mirror: str, topics: Collection[str] | None) -> list[str]:
        """Mirror these topics of the source, or all that match the mirror's patterns. Returns them.

        Topics that are mirrored already continue unchanged.
        """
        self._mirror(mirror)
        await self._life.until_not_fenced()
        wanted = await self._mirrors.discover(mirror)
        by_name = {topic.name: topic for topic in wanted}
        missing = sorted(set(topics or ()) - by_name.keys())
        if missing:
            raise UnknownMirrorError(
                f"mirror {mirror} has no topic {missing[0]!r}: it is not on the source, or the mirror's patterns leave "
                "it out"
            )
        chosen = [t for name, t in by_name.items() if topics is None or name in topics]
        names = {topic.name for topic in chosen}
        refuse_unless((r for k, r in self._own(mirror).items() if k.topic in names), STARTABLE, "started")
        if topics is None:
            await self._mirrors.follow_all(mirror)
        for topic in chosen:
            await self._mirrors.add_topic(mirror, topic)
        return sorted(names)

    async def stop(self, mirror: str, topics: Collection[str] | None) -> list[str]:
        """Stop mirroring: the destination becomes writable. Returns the topics."""
        return await self._request(
            mirror, topics, S.STOPPING, STOPPABLE, already=frozenset({S.STOPPED}), what="stopped"
        )

    async def pause(self, mirror: str, topics: Collection[str] | None) -> list[str]:
        """Mirror nothing until it is resumed; the destination stays read-only. Returns the topics."""
        able = frozenset({S.MIRRORING, S.PAUSED})
        return await self._request(mirror, topics, S.PAUSING, able, already=frozenset({S.PAUSED}), what="paused")

    async def resume(self, mirror: str, topics: Collection[str] | None) -> list[str]:
        """Continue after a pause. Returns the topics."""
        able = frozenset({S.MIRRORING, S.PAUSED})
        return await self._request(mirror, topics, S.MIRRORING, able, already=frozenset(), what="resumed")

    async def describe(self, mirror: str) -> list[MirrorRow]:
        """The status of its partitions."""
        self._mirror(mirror)
        return await self._describing.rows(mirror)

    def last_mirrored(self, mirror: str) -> list[dict[str, int | str]]:
        """Each partition's last mirrored offset, 0 before its first stop: what a failback asks for."""
        self._mirror(mirror)
        return [
            {
                "topic": key.topic,
                "partition": key.partition,
                "offset": max(0, record.last_mirrored),
                "epoch": record.last_mirrored_epoch,
                "stopped_at_ms": record.stopped_at_ms,
            }
            for key, record in sorted(self._own(mirror).items())
        ]

    def crash_at(self, step: str) -> None:
        """Have the process kill itself when it reaches this step; an empty step cancels that."""
        if step and step not in STEPS:
            raise UnknownMirrorError(f"{step!r} is not a step; there are {', '.join(STEPS)}")
        self._crash.at = step

    async def _request(
        self,
        mirror: str,
        topics: Collection[str] | None,
        state: PartitionState,
        able: frozenset[PartitionState],
        *,
        already: frozenset[PartitionState],
        what: str,
    ) -> list[str]:
        await self._life.until_not_fenced()
        records = self._records(mirror, topics)
        refuse_unless(records, able | {state}, what)
        keys = [record.key for record in records if record.state not in already]
        await self._life.request(keys, state, from_states=able)
        return sorted({record.key.topic for record in records})

    def _records(self, mirror: str, topics: Collection[str] | None) -> list[PartitionRecord]:
        self._mirror(mirror)
        own = self._own(mirror)
        known = {key.topic for key in self._life.records if key.mirror == mirror}
        missing = sorted(set(topics or ()) - known)
        if missing:
            raise UnknownMirrorError(f"mirror {mirror} has no topic {missing[0]!r}; it has {', '.join(sorted(known))}")
        return [record for key, record in own.items() if topics is None or key.topic in topics]

    def _own(self, mirror: str) -> Mapping[PartitionKey, PartitionRecord]:
        me = self._life.hub.me
        return {k: r for k, r in self._life.records.items() if k.mirror == mirror and r.owner == me}

    def _mirror(self, mirror: str) -> MirrorConfig:
        found = self._mirrors.configs.get(mirror)
        if found is None:
            names = ", ".join(sorted(self._mirrors.configs)) or "none"
            raise UnknownMirrorError(f"no mirror is called {mirror!r}; there are: {names}")
        return found
