"""Follower sessions, the hand-written Fetch answer and the stamping of batches."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.response import FetchResponse

from harness.wire.batch_headers import headers
from harness.wire.batches import build
from harness.wire.frames import decode
from mirrors.reference.server.epochs import EpochList
from mirrors.reference.server.fetch_codec import encode_answer
from mirrors.reference.server.follower_sessions import Chunk, Content, Opened, Session, Sessions, content
from mirrors.reference.server.pace import PACE_S, SMALL_BYTES, poll_interval, rest
from mirrors.reference.server.partition import Diverging, LedPartition, Refused
from mirrors.reference.server.stamping import PRODUCER_IDS, Stamp, cluster_hash, stamp

TOPIC = uuid.UUID(int=7)
KEY = (TOPIC, 0)


def partition(log_end: int = 0) -> LedPartition:
    made = LedPartition(me=100, topic="t", partition=0, topic_id=TOPIC)
    made.hand_over(log_end=log_end, high_watermark=log_end, log_start=0, epochs=EpochList())
    made.lead(epoch=3, isr=(100, 1), replicas=(100, 1), now=0.0)
    return made


def asked(session_id: int, epoch: int) -> SimpleNamespace:
    return SimpleNamespace(session_id=session_id, session_epoch=epoch)


def test_fetch_sessions_follow_the_protocol() -> None:
    sessions = Sessions()
    first, ended = sessions.open(asked(0, 0), follower=1, client_id="f")
    assert isinstance(first, Opened)
    assert (first.full, ended) == (True, [])
    number = first.session.session_id
    for epoch in (1, 2):
        again, _ = sessions.open(asked(number, epoch), follower=1, client_id="f")
        assert again == Opened(first.session, full=False)
    assert sessions.open(asked(number, 2), follower=1, client_id="f")[0] is ErrorCode.invalid_fetch_session_epoch
    assert sessions.open(asked(number, 3), follower=2, client_id="f")[0] is ErrorCode.fetch_session_id_not_found
    assert sessions.open(asked(999, 1), follower=1, client_id="f")[0] is ErrorCode.fetch_session_id_not_found
    new, ended = sessions.open(asked(number, 0), follower=1, client_id="f")
    assert isinstance(new, Opened)
    assert ended == [first.session]
    assert len(list(sessions)) == 1


def test_chunks_are_fetched_ahead_and_given_in_order() -> None:
    async def body() -> None:
        session = Session(1, 1)
        cursor = session.place(KEY, partition())
        cursor.move(0)
        cursor.put(Chunk(0, 10, b"a" * 10))
        cursor.put(Chunk(10, 20, b"b" * 10))
        cursor.put(Chunk(15, 25, b"never"))  # the response to an earlier request
        assert (session.held, cursor.next_offset) == (20, 20)
        assert session.take_ready() == [cursor]
        said = content(cursor, 10)
        assert (said.records, said.high_watermark) == (b"a" * 10, 0)
        assert not cursor.ready  # the next chunk is for the follower's next fetch
        cursor.move(10)
        assert cursor.ready
        assert content(cursor, 10).records == b"b" * 10
        assert (session.held, cursor.next_offset) == (0, 20)

    asyncio.run(body())


def test_a_follower_that_changes_its_offset_gets_no_chunk_of_the_old_one() -> None:
    async def body() -> None:
        session = Session(1, 1)
        cursor = session.place(KEY, partition())
        cursor.move(0)
        cursor.put(Chunk(0, 10, b"a"))
        generation = cursor.generation
        cursor.move(5)
        assert (session.held, cursor.next_offset, len(cursor.chunks)) == (0, 5, 0)
        assert cursor.generation != generation

    asyncio.run(body())


def test_idle_cursors_send_nothing_and_a_new_high_watermark_once() -> None:
    async def body() -> None:
        session, led = Session(1, 1), partition()
        cursor = session.place(KEY, led)
        cursor.move(0)
        session.mark(cursor)
        assert session.take_ready() == [cursor]
        content(cursor, 100)
        session.said(cursor)
        session.mark(cursor)
        assert session.take_ready() == []
        led.given(1)
        led.fetch(1, current_epoch=3, offset=1, last_epoch=3, log_start=0, broker_epoch=1, now=1.0)
        session.mark(cursor)
        assert session.take_ready() == [cursor]
        assert content(cursor, 100).high_watermark == 1
        assert not cursor.ready

    asyncio.run(body())


def test_refusals_and_divergence_are_sent_instead_of_records() -> None:
    async def body() -> None:
        cursor = Session(1, 1).place(KEY, partition())
        cursor.move(0)
        cursor.put(Chunk(0, 1, b"x"))
        cursor.verdict = Refused(ErrorCode.fenced_leader_epoch)
        said = content(cursor, 100)
        assert (said.error, said.records) == (ErrorCode.fenced_leader_epoch, b"")
        cursor.verdict = Diverging(2, 5)
        assert content(cursor, 100).diverging == Diverging(2, 5)

    asyncio.run(body())


CONTENTS = st.lists(
    st.builds(
        Content,
        st.tuples(st.sampled_from([uuid.UUID(int=1), uuid.UUID(int=2)]), st.integers(0, 1000)),
        error=st.sampled_from([ErrorCode.none, ErrorCode.offset_out_of_range]),
        diverging=st.none() | st.builds(Diverging, st.integers(0, 2**31 - 1), st.integers(0, 2**60)),
        records=st.binary(max_size=300),
        high_watermark=st.integers(-1, 2**60),
        log_start=st.integers(-1, 2**60),
    ),
    max_size=8,
)


@given(CONTENTS, st.integers(0, 2**31 - 1))
def test_the_hand_written_answer_is_read_by_kio(contents: list[Content], session_id: int) -> None:
    body = b"".join(encode_answer(contents, session_id=session_id))
    read, used = decode(FetchResponse, body)
    assert used == len(body)
    assert read.session_id == session_id
    found = [(topic.topic_id, part) for topic in read.responses for part in topic.partitions]
    ordered = sorted(contents, key=lambda said: [c.key[0] for c in contents].index(said.key[0]))
    assert len(found) == len(ordered)
    for said, (topic_id, part) in zip(ordered, found, strict=True):
        assert (topic_id, part.partition_index) == said.key
        assert (part.error_code, part.high_watermark, part.log_start_offset) == (
            said.error,
            said.high_watermark,
            said.log_start,
        )
        assert bytes(part.records) == said.records
        end = part.diverging_epoch
        assert said.diverging == (None if end.epoch < 0 else Diverging(int(end.epoch), int(end.end_offset)))


def source_batches(*specs: tuple[int, int, int, int]) -> bytes:
    """(base offset, records, source epoch, producer id)"""
    return b"".join(
        build([(None, b"v")] * count, timestamp_ms=1, base_offset=base, leader_epoch=epoch, producer_id=pid)
        for base, count, epoch, pid in specs
    )


def read(made: bytes) -> list[tuple[int, int, int, int]]:
    return [(b.base_offset, b.next_offset, b.leader_epoch, b.producer_id) for b in headers(made)]


def test_batches_get_the_epoch_of_their_offset() -> None:
    led = partition(log_end=10)  # epoch 3 began at 10
    led.epochs = EpochList([(1, 0), (3, 10)])
    records = source_batches((8, 2, 40, -1), (10, 5, 40, -1), (15, 1, 41, -1))
    made = stamp(records, offset=8, partition=led, policy=Stamp(), last_epoch=39)
    assert made is not None
    assert read(made.chunk.records) == [(8, 10, 1, -1), (10, 15, 3, -1), (15, 16, 3, -1)]
    assert (made.chunk.offset, made.chunk.end) == (8, 16)
    assert made.new_source_epochs == ((40, 8), (41, 15))


def test_batches_that_need_no_change_are_not_copied() -> None:
    records = source_batches((0, 1, 3, -1))
    made = stamp(records, offset=0, partition=partition(), policy=Stamp(), last_epoch=3)
    assert made is not None
    assert made.chunk.records is records
    assert made.new_source_epochs == ()


def test_batches_above_the_limit_and_cut_off_ones_are_left_out() -> None:
    led = partition()
    led.limit = 7
    records = source_batches((0, 5, 0, -1), (5, 2, 0, -1), (7, 1, 0, -1))
    made = stamp(records[:-1], offset=0, partition=led, policy=Stamp(), last_epoch=0)
    assert made is not None
    assert made.chunk.end == 7
    led.limit = 3
    assert stamp(records, offset=0, partition=led, policy=Stamp(), last_epoch=0) is None


def test_preserved_epochs_stay() -> None:
    policy = Stamp.of(leader_epoch="preserve", producer_ids="verbatim", gaps="keep", source_cluster="c")
    made = stamp(source_batches((0, 1, 9, 5)), offset=0, partition=partition(), policy=policy, last_epoch=-1)
    assert made is not None
    assert read(made.chunk.records) == [(0, 1, 9, 5)]


def test_closed_gaps_renumber_what_follows() -> None:
    led = partition()
    policy = Stamp.of(leader_epoch="rewrite", producer_ids="verbatim", gaps="renumber", source_cluster="c")
    made = stamp(
        source_batches((0, 2, 0, -1), (5, 1, 0, -1), (9, 1, 0, -1)),
        offset=0,
        partition=led,
        policy=policy,
        last_epoch=0,
    )
    assert made is not None
    assert [b[0] for b in read(made.chunk.records)] == [0, 2, 3]
    assert (made.chunk.end, led.shifts.source(4)) == (4, 10)


HASH = cluster_hash("some cluster")


def test_a_high_watermark_sent_with_a_divergence_is_sent_again() -> None:
    """Followers truncate and ignore everything else in such a response."""

    async def body() -> None:
        session = Session(1, 1)
        cursor = session.place(KEY, partition(log_end=160))
        cursor.move(160)
        cursor.verdict = Diverging(2, 160)
        assert content(cursor, 0).diverging == Diverging(2, 160)
        assert cursor.ready
        assert content(cursor, 0).high_watermark == 160
        assert not cursor.ready

    asyncio.run(body())


@pytest.mark.parametrize(
    ("policy", "given_id", "expected"),
    [
        ("verbatim", 5, 5),
        ("reserved_block", 5, 5),
        ("negated", 5, -7),
        ("negated", -7, 5),
        ("positive_region", 5, HASH << 31 | 5),
        ("cluster_region", 5, -(1 << 63) | HASH << 31 | 5),
        ("cluster_region", -(1 << 63) | 77 << 31 | 5, -(1 << 63) | 77 << 31 | 5),
        ("positive_region", 77 << 31 | 5, 77 << 31 | 5),
    ],
)
def test_producer_ids(policy: str, given_id: int, expected: int) -> None:
    assert PRODUCER_IDS[policy](given_id, HASH) == expected
    assert -(1 << 63) <= expected < 1 << 63
    made = stamp(
        source_batches((0, 1, 3, given_id), (1, 1, 3, -1)),
        offset=0,
        partition=partition(),
        policy=Stamp(producer_ids=PRODUCER_IDS[policy], cluster_hash=HASH),
        last_epoch=3,
    )
    assert made is not None
    assert [b[3] for b in read(made.chunk.records)] == [expected, -1]


def test_only_small_answers_wait_for_more_and_only_briefly() -> None:
    assert rest(0, 0.0) == PACE_S
    assert rest(SMALL_BYTES - 1, PACE_S / 4) == pytest.approx(PACE_S * 3 / 4)
    assert rest(10, PACE_S * 2) == 0.0
    assert rest(SMALL_BYTES, 0.0) == 0.0


def test_periodic_snapshots_are_rarer_with_many_partitions() -> None:
    assert poll_interval(0.5, 0) == 0.5
    assert poll_interval(0.5, 1000) == pytest.approx(1.5)
