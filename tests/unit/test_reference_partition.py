"""Partitions led without a log: high watermark, ISR, epochs, truncation, own batches, at given times."""

from __future__ import annotations

import uuid

import pytest
from kio.schema.errors import ErrorCode

from mirrors.reference.server.epochs import EpochList, OffsetShifts
from mirrors.reference.server.isr import EpochSearch, differs, wanted_isr
from mirrors.reference.server.partition import ALONE_S, Diverging, LedPartition, Refused, Tail

ME = 100
LAG_S = 4.0


def led(*, log_end: int = 0, epochs: EpochList | None = None, epoch: int = 0) -> LedPartition:
    """A partition with followers 1, 2 and 3, at the start of its leadership."""
    made = LedPartition(me=ME, topic="t", partition=0, topic_id=uuid.UUID(int=1))
    made.hand_over(log_end=log_end, high_watermark=log_end, log_start=0, epochs=epochs or EpochList())
    made.lead(epoch=epoch, isr=(ME, 1, 2, 3), replicas=(ME, 1, 2, 3), now=0.0)
    return made


def fetch(p: LedPartition, follower: int, offset: int, *, now: float = 1.0, last: int = -1, epoch: int | None = None):
    return p.fetch(
        follower,
        current_epoch=p.leader_epoch if epoch is None else epoch,
        offset=offset,
        last_epoch=last,
        log_start=0,
        broker_epoch=follower * 10,
        now=now,
    )


def test_the_high_watermark_is_what_every_in_sync_follower_has_and_never_goes_back() -> None:
    p = led()
    p.given(10)
    for follower, offset in ((1, 10), (2, 7)):
        assert fetch(p, follower, offset) is None
    assert p.high_watermark == 0  # follower 3 has not fetched yet
    fetch(p, 3, 9)
    assert p.high_watermark == 7
    fetch(p, 2, 3)  # a follower that lost its disk
    assert p.high_watermark == 7
    fetch(p, 2, 10)
    assert p.high_watermark == 9


def test_a_follower_that_leaves_the_in_sync_set_holds_nothing_up() -> None:
    p = led()
    p.given(10)
    for follower, offset in ((1, 10), (2, 10), (3, 4)):
        fetch(p, follower, offset)
    assert p.high_watermark == 4
    p.set_isr((ME, 1, 2))
    assert p.high_watermark == 10


def test_a_follower_that_is_about_to_join_counts_already() -> None:
    p = led()
    p.set_isr((ME, 1))
    p.given(10)
    fetch(p, 1, 5)
    fetch(p, 2, 5)
    p.joining = frozenset({2})
    fetch(p, 1, 10)
    assert p.high_watermark == 5


def test_wrong_leader_epochs_and_strangers_are_refused() -> None:
    p = led(epoch=5)
    assert fetch(p, 1, 0, epoch=4) == Refused(ErrorCode.fenced_leader_epoch)
    assert fetch(p, 1, 0, epoch=6) == Refused(ErrorCode.unknown_leader_epoch)
    assert fetch(p, 9, 0) == Refused(ErrorCode.unknown_topic_or_partition)
    p.stand_down(6)
    assert fetch(p, 1, 0) == Refused(ErrorCode.not_leader_or_follower)


def test_a_leadership_without_a_handover_waits_for_every_in_sync_follower() -> None:
    p = LedPartition(me=ME, topic="t", partition=0, topic_id=uuid.UUID(int=1))
    p.lead(epoch=3, isr=(ME, 1, 2), replicas=(ME, 1, 2), now=0.0)
    assert fetch(p, 1, 12) == Refused(ErrorCode.not_leader_or_follower)
    assert p.high_watermark is None
    assert fetch(p, 2, 10) is None
    assert (p.high_watermark, p.log_end) == (10, 12)
    assert p.epochs.entries == ((3, 12),)
    assert fetch(p, 1, 12) is None


def test_followers_truncate_to_the_handed_over_log_by_their_epoch() -> None:
    """The previous leader's last known log end was 100; one follower has two more, uncommitted records."""
    p = led(log_end=100, epochs=EpochList([(0, 0), (3, 50)]), epoch=4)
    assert p.epochs.entries == ((0, 0), (3, 50), (4, 100))
    assert fetch(p, 1, 102, last=3) == Diverging(3, 100)
    assert fetch(p, 1, 100, last=3) is None
    assert fetch(p, 2, 60, last=0) == Diverging(0, 50)
    assert fetch(p, 3, 60, last=2) == Diverging(0, 50)  # an epoch that this log never had


def test_truncation_lowers_the_high_watermark_and_diverges_every_follower_once() -> None:
    p = led(log_end=100, epochs=EpochList([(0, 0)]), epoch=1)
    for follower in (1, 2):
        fetch(p, follower, 100, last=0)
    p.truncate(40, now=5.0)
    assert (p.high_watermark, p.log_end, p.fully_replicated) == (40, 40, False)
    assert fetch(p, 1, 100, last=0) == Diverging(0, 40)
    assert fetch(p, 1, 40, last=0) is None
    assert fetch(p, 2, 40, last=0) is None
    assert not p.fully_replicated
    assert fetch(p, 3, 100, last=0) == Diverging(0, 40)  # it was down
    assert fetch(p, 3, 40, last=0) is None
    assert p.fully_replicated
    p.given(50)
    assert fetch(p, 1, 50, last=1) is None  # no truncation any more
    assert p.epochs.entries == ((0, 0), (1, 40))


def test_consumers_may_read_a_follower_only_once_it_holds_nothing_but_this_log() -> None:
    p = led(log_end=100, epochs=EpochList([(0, 0), (2, 50)]), epoch=3)
    assert not p.matches(1)  # it has not fetched in this leadership
    assert fetch(p, 1, 60, last=1) == Diverging(0, 50)
    assert not p.matches(1)  # until it fetches again, it holds its own branch
    fetch(p, 1, 50, last=0)
    assert p.matches(1)
    for follower in (2, 3):
        fetch(p, follower, 100, last=2)
    p.truncate(40, now=5.0)
    assert not p.matches(1)
    assert not p.matches(2)
    fetch(p, 1, 40, last=0)
    assert p.matches(1)


def test_a_partition_left_out_of_a_fetch_keeps_the_followers_offset() -> None:
    p = led(log_end=10)
    for follower in (1, 2, 3):
        fetch(p, follower, 0)
    p.truncate(0, now=5.0)
    p.still_at(1, 0, 4.9)  # it fetched before the truncation: records may be in flight to it
    assert 1 in p.cuts
    for follower in (1, 2, 3):
        p.still_at(follower, 0, 5.1)
    assert p.fully_replicated


def test_own_batches_follow_the_log_end_and_are_given_from_an_offset() -> None:
    p = led(log_end=5)
    p.append_tail([Tail(5, 6, b"a"), Tail(6, 8, b"bb")])
    assert (p.log_end, p.tail_from(5), p.tail_from(6), p.tail_from(8)) == (8, b"abb", b"bb", b"")
    with pytest.raises(ValueError, match="cannot follow the log end 8"):
        p.append_tail([Tail(9, 10, b"c")])


def test_the_log_start_is_sent_only_up_to_the_high_watermark() -> None:
    p = led(log_end=100)
    assert p.feed_log_start(60)
    assert p.sent_log_start == 60
    assert not p.feed_log_start(50)
    p.jump(500)
    assert (p.log_start, p.log_end, p.sent_log_start) == (500, 500, 100)
    assert fetch(p, 1, 100) == Refused(ErrorCode.offset_out_of_range)


def test_a_laggard_leaves_but_never_the_last_real_replica() -> None:
    p = led()
    p.given(10)
    for follower in (1, 2, 3):
        fetch(p, follower, 0, now=1.0)
    fetch(p, 1, 10, now=2.0)
    assert wanted_isr(p, now=2.0, lag_s=LAG_S) == {ME, 1, 2, 3}
    for now in (4.0, 5.5):
        fetch(p, 1, 10, now=now)
    assert wanted_isr(p, now=5.6, lag_s=LAG_S) == {ME, 1}
    assert wanted_isr(p, now=50.0, lag_s=LAG_S) == {ME, 1}  # all lag: the one with the highest log end stays


def test_a_follower_under_steady_load_is_never_at_the_end_and_yet_caught_up() -> None:
    p = led()
    for second in range(20):
        p.given(10 * second + 10)
        for follower in (1, 2, 3):
            fetch(p, follower, 10 * second, now=float(second))
    assert wanted_isr(p, now=19.0, lag_s=LAG_S) == {ME, 1, 2, 3}


def test_a_follower_joins_with_everything_below_the_high_watermark_while_it_lives() -> None:
    p = led(log_end=10)
    p.set_isr((ME, 1))
    fetch(p, 1, 10, now=1.0)
    fetch(p, 2, 9, now=1.0)
    assert wanted_isr(p, now=1.0, lag_s=LAG_S) == {ME, 1}
    fetch(p, 2, 10, now=1.5)
    assert wanted_isr(p, now=1.5, lag_s=LAG_S) == {ME, 1, 2}
    assert wanted_isr(p, now=4.9, lag_s=LAG_S) == {ME, 1}  # it has not fetched for seconds: the controller would refuse


@pytest.mark.parametrize("right", [0, 1, 2, 3, 17, 1000, 123_456])
def test_the_partition_epoch_is_found_by_bisection(right: int) -> None:
    search = EpochSearch()
    search.start(0)
    tries = 0
    while search.guess != right:
        error = ErrorCode.invalid_update_version if search.guess < right else ErrorCode.not_controller
        assert search.refused(error)
        tries += 1
    assert tries < 40
    assert not search.refused(ErrorCode.ineligible_replica)


def test_epoch_lists_answer_as_kafka_does() -> None:
    epochs = EpochList([(0, 0), (2, 10), (5, 30)])
    assert [epochs.at(o) for o in (0, 9, 10, 29, 30, 99)] == [0, 0, 2, 2, 5, 5]
    assert [epochs.before(o) for o in (0, 1, 10, 11, 31)] == [-1, 0, 0, 2, 5]
    assert [epochs.end_of(e) for e in (0, 1, 2, 4, 5, 9)] == [(0, 10), (0, 10), (2, 30), (2, 30), (5, None), (5, None)]
    assert not epochs.begin(5, 40)
    epochs.truncate(30)
    assert epochs.entries == ((0, 0), (2, 10))
    assert epochs.begin(7, 5)
    assert epochs.entries == ((0, 0), (7, 5))


def test_offset_shifts_go_both_ways() -> None:
    shifts = OffsetShifts()
    assert (shifts.source(7), shifts.destination(7)) == (7, 7)
    shifts.begin(10, 15)  # five offsets of the source were left out
    assert [shifts.source(o) for o in (9, 10, 12)] == [9, 15, 17]
    assert [shifts.destination(o) for o in (9, 15, 17)] == [9, 10, 12]
    shifts.truncate(10)
    assert shifts.entries == ()


def test_own_batches_are_for_followers_that_have_reached_them() -> None:
    p = led(log_end=10)
    p.append_tail([Tail(10, 11, b"a")])
    assert (p.tail_from(9), p.tail_from(10)) == (b"", b"a")  # from 9 on, record 9 would be missing


def test_a_follower_that_is_to_truncate_does_not_join_before_it_has() -> None:
    p = led(log_end=10, epochs=EpochList([(1, 0)]), epoch=3)
    p.set_isr((ME, 1))
    fetch(p, 1, 10, last=1)
    assert fetch(p, 2, 15, last=1) == Diverging(1, 10)
    assert wanted_isr(p, now=1.1, lag_s=LAG_S) == {ME, 1}
    assert fetch(p, 2, 10, last=1, now=1.2) is None
    assert wanted_isr(p, now=1.3, lag_s=LAG_S) == {ME, 1, 2}


def test_an_isr_of_unknown_outcome_is_requested_until_it_is_known() -> None:
    p = led(log_end=10)
    p.set_isr((ME, 1, 3))
    for follower in (1, 2, 3):
        fetch(p, follower, 10)
    p.joining = frozenset({2})  # no response came
    assert differs(p, frozenset({ME, 1, 2, 3}))
    p.given(20)
    for now in range(2, 12):  # 2 is dead
        fetch(p, 1, 20, now=now)
        fetch(p, 3, 20, now=now)
    assert (wanted_isr(p, now=11, lag_s=LAG_S), p.high_watermark) == ({ME, 1, 3}, 10)
    assert differs(p, frozenset({ME, 1, 3}))  # the same ISR as before, but the controller's is unknown
    p.joining = frozenset()
    assert not differs(p, frozenset({ME, 1, 3}))


class TestOnlyTheMirrorIsInSync:
    """All real replicas failed, one after the other, and the process restarted: it knows nothing of the log."""

    @staticmethod
    def alone() -> LedPartition:
        made = LedPartition(me=ME, topic="t", partition=0, topic_id=uuid.UUID(int=1))
        made.lead(epoch=7, isr=(ME,), replicas=(ME, 1, 2), now=0.0)
        return made

    def test_the_longest_replica_is_the_log(self) -> None:
        p = self.alone()
        assert fetch(p, 1, 8, last=5) == Refused(ErrorCode.not_leader_or_follower)
        assert p.high_watermark is None
        assert fetch(p, 2, 10, last=5) is None
        assert (p.high_watermark, p.log_end, p.epochs.entries) == (10, 10, ((7, 10),))
        assert wanted_isr(p, now=1.1, lag_s=LAG_S) == {ME, 2}

    def test_a_replica_that_stays_down_is_not_awaited_for_ever(self) -> None:
        p = self.alone()
        for now in (1.0, ALONE_S - 1):
            fetch(p, 1, 8, last=5, now=now)
        assert p.high_watermark is None
        fetch(p, 1, 8, last=5, now=ALONE_S)
        assert p.high_watermark == 8


def test_an_epoch_is_fresh_until_records_are_given_in_it() -> None:
    p = led(log_end=10, epochs=EpochList([(1, 0)]), epoch=3)
    assert p.epoch_is_fresh
    p.given(11)
    assert not p.epoch_is_fresh
