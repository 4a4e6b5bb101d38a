"""Cluster A stored as by a diskless cluster: batches in objects that metadata references, merged and deleted later."""

from __future__ import annotations

from collections.abc import Mapping

from model.book import EPOCH_MS, SECOND, Row
from model.logs import MARKERS, Batch, Partition
from model.world import World

MERGE_AT, FORGET_AT, DELETE_AT = 57 * SECOND, 58 * SECOND, 59 * SECOND
LOOKS = (54 * SECOND, 63 * SECOND, 82 * SECOND)
EPOCH = 7
"""Broker epoch of every broker that uploads."""


def store(world: World, names: Mapping[str, str | None]) -> None:
    """Write `objects` and `object_refs` for A's logs. names: value → its transaction's name."""
    row = world.book.row
    for broker in world.a.partitions[0].replicas:
        row("object_refs", cluster="A", event="epoch", broker=broker, broker_epoch=EPOCH, time_ns=1)
    created: dict[str, int] = {}
    gone: set[str] = set()
    for part in world.a.partitions:
        data = [b for b in part.log.batches if b.control is None and b.records]
        for b in data:
            created[_name(world, part, b)] = _at(b)
            _commit(world, part, b, _name(world, part, b), _at(b))
        merged = [b for b in data if _at(b) < 50 * SECOND and world.chance(0.3)]
        for b in merged:
            name = f"{_name(world, part, b)}-merged"
            created[name] = MERGE_AT
            _commit(world, part, b, name, MERGE_AT)
            gone.add(_name(world, part, b))
        _visible(world, part, names)
    for name in sorted(gone):
        row("object_refs", cluster="A", event="drop", object=name, time_ns=FORGET_AT)
        row("objects", cluster="A", event="delete", object=name, time_ns=DELETE_AT)
    for cycle, time_ns in enumerate(LOOKS):
        there = [n for n, at in created.items() if at < time_ns and (n not in gone or time_ns < DELETE_AT)]
        for name in there or [None]:
            at = created.get(name or "")
            columns: Row = {"object": name, "size": 100, "created_ns": at, "cycle": 3 * cycle, "look": cycle}
            row("objects", cluster="A", event="look", time_ns=time_ns, **columns)


def _name(world: World, part: Partition, b: Batch) -> str:
    return world.book.name(f"object-{part.number}-{b.base}")


def _at(b: Batch) -> int:
    return (b.time_ms - EPOCH_MS) * 1_000_000


def _commit(world: World, part: Partition, b: Batch, name: str, at: int) -> None:
    row = world.book.row
    row("objects", cluster="A", event="upload", object=name, size=100, created_ns=at, time_ns=at)
    place = {"topic": part.topic, "partition": part.number, "base_offset": b.base, "last_offset": b.last}
    broker = min(part.replicas)
    by = {"broker": broker, "broker_epoch": EPOCH, "accepted": True}
    row("object_refs", cluster="A", event="commit", object=name, time_ns=at + 1, **place, **by)


def _visible(world: World, part: Partition, names: Mapping[str, str | None]) -> None:
    """When each committed transaction became visible: with its marker in this partition."""
    under_way: dict[int, str | None] = {}
    for b in part.log.batches:
        if b.control in MARKERS:
            txn = under_way.pop(b.pid, None)
            if txn is not None and b.control == "COMMIT":
                world.book.row("object_refs", cluster="A", event="txn", txn=txn, time_ns=_at(b) + 500_000)
        elif b.transactional and b.records:
            under_way[b.pid] = names.get(b.records[0].value or "")
