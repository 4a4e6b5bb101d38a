"""A process that may be fenced, and outdated responses: nothing is done on the basis of outdated state."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.core.errors import MirrorError
from harness.wire.cluster import Cluster
from harness.wire.metadata import PartitionMeta
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.metadata_snapshots import MetadataSnapshots
from mirrors.reference.server.model import MirrorConfig, PartitionKey, PartitionRecord
from mirrors.reference.server.partition import Feed, LedPartition
from mirrors.reference.server.settings import Destination, Settings
from mirrors.reference.server.source import SourceLink
from mirrors.reference.server.states import PartitionState as S
from mirrors.reference.server.steps import CrashPoints
from mirrors.reference.server.work_loop import WorkLoop

ME = 100
NOBODY = "127.0.0.1:1"  # these tests send no requests
KEY = PartitionKey("A-B", "t", 0)
TOPIC = uuid.UUID(int=1)
RECORD = PartitionRecord(key=KEY, state=S.MIRRORING, topic_id=TOPIC, source_topic_id=uuid.UUID(int=2), owner=ME)


class Clock:
    """A clock that moves only when it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Store:
    """Keeps the records that it is given."""

    def __init__(self) -> None:
        self.stored: list[PartitionRecord] = []

    async def put(self, records: Sequence[PartitionRecord]) -> None:
        self.stored += records


def hub(clock: Clock) -> Hub:
    where = Destination(bootstrap=NOBODY, controllers=NOBODY)
    return Hub(Settings(broker_id=ME, destination=where, listeners=()), clock=clock)


def life(of: Hub) -> Lifecycle:
    store: Any = Store()
    made = Lifecycle(of, store, CrashPoints())
    made.links["A-B"] = SourceLink("A-B", Cluster(NOBODY))
    made.records[KEY] = RECORD
    return made


def part(*, leader: int = ME, epoch: int, isr: tuple[int, ...] = (ME, 1, 2)) -> PartitionMeta:
    return PartitionMeta(topic="t", partition=0, leader=leader, leader_epoch=epoch, replicas=(ME, 1, 2), isr=isr)


class TestHeartbeats:
    def test_a_late_one_puts_the_records_in_doubt_until_they_are_read_again(self) -> None:
        clock = Clock()
        h = hub(clock)
        assert not h.maybe_fenced  # no broker yet
        for at in (0.0, 0.5, 3.0):
            h.on_heartbeat_ack(at)
        clock.now = 5.9
        assert not h.maybe_fenced
        clock.now = 6.1
        assert h.maybe_fenced  # while none gets through
        h.on_heartbeat_ack(6.1)
        assert h.maybe_fenced  # and afterwards: it may have been fenced
        h.records_are_stale = False
        assert not h.maybe_fenced

    def test_nothing_is_stored_in_doubt(self) -> None:
        h = hub(Clock())
        made = life(h)
        h.records_are_stale = True
        with pytest.raises(MirrorError, match="reads its records again"):
            asyncio.run(made.save([replace(RECORD, state=S.STOPPING)]))
        assert made.records[KEY] is RECORD
        store: Any = made.store
        assert store.stored == []

    def test_a_request_waits_until_the_records_are_read_again_and_spares_those_of_others(self) -> None:
        async def body() -> None:
            h = hub(Clock())
            made = life(h)
            h.suspect_fencing()
            request = asyncio.create_task(made.request([KEY], S.STOPPING, from_states=[S.MIRRORING]))
            await asyncio.sleep(0.1)
            assert not request.done()
            assert made.renew({KEY: replace(RECORD, owner=101)})
            h.records_are_stale = False
            with pytest.raises(MirrorError, match="t-0 belongs to process 101 now"):
                await request

        asyncio.run(body())

    def test_a_partition_whose_handover_failed_is_fed_again(self) -> None:
        async def body() -> None:
            made = life(hub(Clock()))
            fed = []

            async def mirror(group: Sequence[object]) -> None:
                fed.extend(group)

            loop = WorkLoop(made, {S.MIRRORING: mirror})
            held = made.attach(RECORD)
            held.led.leading, held.led.feed, held.led.limit = True, Feed.SOURCE, 10
            loop._dispatch()
            await asyncio.sleep(0)
            assert fed == [held]
            held.led.limit = None
            await asyncio.sleep(0)
            loop._dispatch()
            await asyncio.sleep(0)
            assert fed == [held]

        asyncio.run(body())


class TestRecordsReadAgain:
    def test_records_of_another_process_count_and_its_partitions_are_released(self) -> None:
        async def body() -> None:
            h = hub(Clock())
            made = life(h)
            kept = made.attach(RECORD)
            assert made.renew({KEY: RECORD})
            assert made.mirrored(KEY) is kept
            stopped = replace(RECORD, state=S.STOPPED, owner=101)
            assert made.renew({KEY: stopped})
            assert (made.records, made.mirrored(KEY), h.partitions) == ({KEY: stopped}, None, {})
            assert made.renew({})
            assert made.records == {}

        asyncio.run(body())

    def test_not_during_an_operation(self) -> None:
        async def body() -> None:
            made = life(hub(Clock()))
            done = asyncio.Event()

            async def work(_: object) -> None:
                await done.wait()

            WorkLoop(made, {}).start(work, [made.attach(RECORD)])
            assert not made.renew({})
            assert KEY in made.records
            done.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert made.renew({})

        asyncio.run(body())


class TestRestarted:
    def test_a_partition_that_is_led_here_already_keeps_its_followers(self) -> None:
        async def body() -> None:
            made = life(hub(Clock()))
            first = made.attach(RECORD)
            first.led.hand_over(log_end=7, high_watermark=7, log_start=0, epochs=first.led.epochs)
            first.led.lead(epoch=3, isr=(ME, 1), replicas=(ME, 1), now=0.0)
            first.led.feed, first.led.limit = Feed.SOURCE, 9
            made.restart(KEY, TOPIC)
            again = made.attach(replace(RECORD, state=S.PREPARING, cut=5))
            assert again is not first
            assert again.led is first.led
            assert (again.led.leading, again.led.log_end, again.led.feed, again.led.limit) == (True, 7, Feed.HELD, None)

        asyncio.run(body())

    def test_a_recreated_topic_starts_without_state(self) -> None:
        async def body() -> None:
            h = hub(Clock())
            made = life(h)
            first = made.attach(RECORD)
            first.led.lead(epoch=3, isr=(ME, 1), replicas=(ME, 1), now=0.0)
            other = uuid.UUID(int=9)
            made.restart(KEY, other)
            again = made.attach(replace(RECORD, topic_id=other))
            assert again.led is not first.led
            assert list(h.partitions) == [(other, 0)]

        asyncio.run(body())


class TestOlderAnswers:
    @staticmethod
    def led(of: Hub) -> LedPartition:
        made = LedPartition(me=ME, topic="t", partition=0, topic_id=TOPIC)
        made.lead(epoch=6, isr=(ME, 1), replicas=(ME, 1, 2), now=0.0)
        of.add(made)
        return made

    def test_an_older_leader_epoch_is_ignored(self) -> None:
        async def body() -> None:
            h = hub(Clock())
            snapshots, led = MetadataSnapshots(h), self.led(h)
            snapshots._take_in(led, part(leader=1, epoch=5), 0.0)
            assert led.leading
            snapshots._take_in(led, part(leader=1, epoch=7), 0.0)
            assert not led.leading

        asyncio.run(body())

    def test_a_broker_that_does_not_know_the_partition_is_believed_after_a_while(self) -> None:
        async def body() -> None:
            h = hub(Clock())
            snapshots, led = MetadataSnapshots(h), self.led(h)
            snapshots._take_in(led, None, 0.0)
            snapshots._take_in(led, part(epoch=6, isr=(ME, 1)), 0.5)
            for at in (1.0, 2.9):
                snapshots._take_in(led, None, at)
                assert led.leading
            snapshots._take_in(led, None, 3.0)
            assert not led.leading

        asyncio.run(body())

    def test_an_isr_from_the_controller_is_not_replaced_by_older_metadata(self) -> None:
        async def body() -> None:
            h = hub(Clock())
            snapshots, led = MetadataSnapshots(h), self.led(h)
            led.isr_at = 5.0
            led.set_isr((ME, 1, 2))
            snapshots._take_in(led, part(epoch=6, isr=(ME, 1)), 4.9)
            assert led.isr == {ME, 1, 2}
            snapshots._take_in(led, part(epoch=6, isr=(ME, 1)), 6.1)  # the controller fenced broker 2
            assert led.isr == {ME, 1}

        asyncio.run(body())


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"source": "kafka"}, "'kafka' is not HOST:PORT"), ({"topics": "orders("}, "topics is not a regular expression")],
)
def test_a_mirror_that_cannot_work_is_refused_before_it_is_stored(changed: dict[str, str], named: str) -> None:
    config = MirrorConfig(name="A-B", source="a:9092")
    config.check()
    with pytest.raises(MirrorError, match=r"mirror A-B: .*" + named.replace("(", r"\(")):
        replace(config, **changed).check()
