"""All client kinds: planted histories that must show exactly that kind, and clean twins that must show none.

Three histories: imported without logs, imported with logs, and a real run with final reads. A case is a topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest
from cases import Case, Make, build
from literal import History
from pyspark.sql import SparkSession

from checkers.catalogue import CHECKERS
from checkers.views.tables import Tables

CLIENT_CHECKERS = (
    *("lost_write", "duplicate", "inconsistent_offsets", "misplaced", "aborted_read", "torn_transaction"),
    *("ack_mismatch", "send_order", "poll_order"),
)
Cases = dict[str, tuple[Make, set[str]]]
polled: Cases = {}
logged: Cases = {}
again: Cases = {}  # topics that are deleted and recreated
ours: Cases = {}
GROUPS = {"polled": polled, "logged": logged, "again": again, "ours": ours}
Kinds = dict[str, dict[str, list[str]]]


def case(group: Cases, *kinds: str):  # type: ignore[no-untyped-def]
    """Put a case into a group, with the kinds that it must show: exactly these."""

    def add(make: Make) -> Make:
        group[make.__name__] = (make, set(kinds))
        return make

    return add


# --- polls alone -----------------------------------------------------------------------------------------------------


@case(polled)
def plain(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.send("v2", at=2)
    c.poll((0, "v0"), (1, "v1"))
    c.poll((2, "v2"))
    c.poll((0, "v0"), (1, "v1"), (2, "v2"), by="d")


@case(polled, "lost_write")
def passed_over(c: Case) -> None:
    c.send("v0", "v1", "v2", at=0)
    c.poll((0, "v0"), (2, "v2"))


@case(polled)
def passed_over_but_unacknowledged(c: Case) -> None:
    c.send("v0", at=0)
    c.send("v1", end="info")
    c.send("v2", at=2, by="q")
    c.poll((0, "v0"), (2, "v2"))


@case(polled, "unseen")
def not_read_far_enough(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.poll((0, "v0"))


@case(polled)
def never_completed_and_read(c: Case) -> None:
    c.send("v0", end=None)
    c.poll((0, "v0"))


@case(polled, "duplicate")
def twice_in_the_log(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.poll((0, "v0"), (1, "v1"), (2, "v0"))


@case(polled)
def twice_read(c: Case) -> None:
    c.send("v0", at=0)
    c.poll((0, "v0"))
    c.poll((0, "v0"), by="d")


@case(polled, "inconsistent_offsets")
def two_readers_disagree(c: Case) -> None:
    c.send("v0", end="info")
    c.send("v1", end="info", by="q")
    c.poll((0, "v0"))
    c.poll((0, "v1"), by="d")


@case(polled, "inconsistent_offsets", "lost_write")
def acknowledged_twice_at_one_offset(c: Case) -> None:
    c.send("v0", at=0)
    c.send("v1", at=0, by="q")
    c.send("v2", at=1)
    c.poll((0, "v0"), (1, "v2"))


@case(polled, "phantom")
def nobody_sent_it(c: Case) -> None:
    c.send("v0", at=0)
    c.poll((0, "v0"), (1, "ghost"))


@case(polled, "misplaced")
def in_another_partition(c: Case) -> None:
    c.send("v0", end="info", p=0)
    c.poll((0, "v0"), p=1)


@case(polled)
def on_the_mirror_under_its_name(c: Case) -> None:
    c.send("v0", at=5)
    c.poll((5, "v0"))
    c.poll((0, "v0"), on="B", by="d")


@case(polled, "misplaced")
def on_the_mirror_in_another_partition(c: Case) -> None:
    c.send("v0", at=5)
    c.poll((5, "v0"))
    c.poll((0, "v0"), on="B", by="d", p=3)


@case(polled, "aborted_read")
def aborted_and_seen(c: Case) -> None:
    c.step("txn_begin", "T")
    c.send("v0", at=0, txn="T")
    c.step("txn_abort", "T")
    c.poll((0, "v0"), isolation="read_committed")


@case(polled, "aborted_read")
def aborted_and_seen_by_one_and_passed_over_by_another(c: Case) -> None:
    c.send("w0", at=0, by="q")
    c.step("txn_begin", "T")
    c.send("v0", at=1, txn="T")
    c.step("txn_abort", "T")
    c.send("w1", at=3, by="q")
    c.poll((0, "w0"), (1, "v0"), (3, "w1"), isolation="read_committed")
    c.poll((0, "w0"), (3, "w1"), by="d", isolation="read_committed")


@case(polled)
def aborted_and_seen_uncommitted(c: Case) -> None:
    c.step("txn_begin", "T")
    c.send("v0", at=0, txn="T")
    c.step("txn_abort", "T")
    c.poll((0, "v0"), isolation="read_uncommitted")


@case(polled, "aborted_read")
def aborted_as_one_operation(c: Case) -> None:
    c.whole((0, 0, "v0"), end="fail")
    c.poll((0, "v0"), isolation="read_committed")


@case(polled, "aborted_read")
def refused_for_certain_and_read(c: Case) -> None:
    c.send("v0", end="fail")
    c.poll((0, "v0"))


@case(polled)
def refused_and_not_read(c: Case) -> None:
    c.send("v0", end="fail")
    c.send("v1", at=0)
    c.poll((0, "v1"))


@case(polled, "precommitted_read")
def reads_its_own_uncommitted_record(c: Case) -> None:
    c.whole((0, 0, "v0"), read=((0, 0, "v0"),))
    c.poll((0, "v0"))


@case(polled)
def reads_its_own_record_after_the_commit(c: Case) -> None:
    c.whole((0, 0, "v0"))
    c.whole((0, 2, "v1"), read=((0, 0, "v0"),))
    c.poll((0, "v0"), (2, "v1"), isolation="read_committed")


@case(polled, "torn_transaction", "lost_write")
def half_a_transaction(c: Case) -> None:
    c.whole((0, 0, "v0"), (1, 0, "v1"))
    c.whole((1, 2, "v2"))
    c.poll((0, "v0"), p=0, isolation="read_committed")
    c.poll((2, "v2"), p=1, isolation="read_committed")


@case(polled, "torn_transaction")
def half_a_transaction_of_unknown_end(c: Case) -> None:
    c.step("txn_begin", "T")
    c.send("v0", at=0, p=0, txn="T")
    c.send("v1", at=0, p=1, txn="T")
    c.step("txn_commit", "T", end="info")
    c.send("v2", at=2, p=1, by="q")
    c.poll((0, "v0"), p=0, isolation="read_committed")
    c.poll((0, "v1"), (2, "v2"), p=1, by="u", isolation="read_uncommitted")
    c.poll((2, "v2"), p=1, isolation="read_committed")


@case(polled)
def a_whole_transaction(c: Case) -> None:
    c.whole((0, 0, "v0"), (1, 0, "v1"))
    c.whole((1, 2, "v2"))
    c.poll((0, "v0"), p=0, isolation="read_committed")
    c.poll((0, "v1"), (2, "v2"), p=1, isolation="read_committed")


@case(polled, "ack_mismatch")
def stored_elsewhere_than_acknowledged(c: Case) -> None:
    c.send("v0", at=0)
    c.send("v1", at=7, by="q")
    c.poll((0, "v0"), (1, "v1"))


@case(polled, "nonmonotonic_send")
def told_a_lower_offset_by_a_new_client(c: Case) -> None:
    c.send("v0", at=5, client="one")
    c.send("v1", at=3, client="two")
    c.poll((3, "v1"), (5, "v0"))


@case(polled, "reordered")
def in_another_order_without_offsets(c: Case) -> None:
    c.send("v0")
    c.send("v1")
    c.poll((0, "v1"), (1, "v0"))


@case(polled, "reordered", "nonmonotonic_send")
def in_another_order_and_told_so(c: Case) -> None:
    c.send("v0", at=1)
    c.send("v1", at=0)
    c.poll((0, "v1"), (1, "v0"))


@case(polled)
def late_after_an_unknown_end(c: Case) -> None:
    c.send("v0", end="info")
    c.send("v1", at=0)
    c.poll((0, "v1"), (1, "v0"))


@case(polled, "poll_skip")
def leaves_out_what_another_read(c: Case) -> None:
    c.send("v0", "v1", "v2", at=0)
    c.poll((0, "v0"))
    c.poll((2, "v2"))
    c.poll((0, "v0"), (1, "v1"), (2, "v2"), by="d")


@case(polled, "poll_skip")
def leaves_out_within_one_poll(c: Case) -> None:
    c.send("v0", "v1", "v2", at=0)
    c.poll((0, "v0"), (2, "v2"))
    c.poll((0, "v0"), (1, "v1"), (2, "v2"), by="d")


@case(polled)
def leaves_out_what_was_aborted(c: Case) -> None:
    c.send("v0", at=0)
    c.whole((0, 1, "v1"), end="fail", by="t")
    c.send("v2", at=3)
    c.poll((0, "v0"), (3, "v2"), isolation="read_committed")
    c.poll((0, "v0"), (1, "v1"), (3, "v2"), by="u", isolation="read_uncommitted")


@case(polled)
def starts_anew_after_an_assignment(c: Case) -> None:
    c.send("v0", "v1", "v2", at=0)
    c.poll((0, "v0"), (1, "v1"))
    c.h.event(c.name("c"), "ok", "assign", cluster="A")
    c.poll((0, "v0"), (1, "v1"), (2, "v2"))


@case(polled, "nonmonotonic_poll")
def goes_back(c: Case) -> None:
    c.send("v0", "v1", "v2", at=0)
    c.poll((0, "v0"), (1, "v1"))
    c.poll((1, "v1"), (2, "v2"))


@case(polled, "nonmonotonic_poll")
def goes_back_within_one_poll(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.poll((1, "v1"), (0, "v0"))


@case(polled)
def gets_again_what_a_share_group_released(c: Case) -> None:
    group = c.name("s")
    place = {"cluster": "A", "group": group, "topic": c.topic, "partition": 0}
    c.h.row("group_offsets", **place, kind="share", event="look", offset=0)
    c.send("v0", "v1", "v2", at=0)
    c.h.event(c.name("c"), "ok", "subscribe", cluster="A", group=group)
    c.poll((0, "v0"), (2, "v2"), group=group)
    c.poll((1, "v1"), group=group)


@case(polled)
def two_completions(c: Case) -> None:
    invoke = c.send("v0", at=0)
    record = {"action": "send", "topic": c.topic, "partition": 0, "value": c.name("v0"), "offset": 0}
    c.h.event(c.name("p"), "ok", "send", [record], invoke_index=invoke, cluster="A")
    c.poll((0, "v0"))


@case(polled)
def contradicting_completions(c: Case) -> None:
    invoke = c.send("v0", at=0)
    record = {"action": "send", "topic": c.topic, "partition": 0, "value": c.name("v0")}
    c.h.event(c.name("p"), "fail", "send", [record], invoke_index=invoke, cluster="A")


@case(polled)
def nobody_invoked(c: Case) -> None:
    record = {"action": "send", "topic": c.topic, "partition": 0, "value": c.name("v0"), "offset": 0}
    c.h.event(c.name("stranger"), "ok", "send", [record], cluster="A")
    c.poll((0, "v0"))


@case(polled, "lost_write")
def far_offsets(c: Case) -> None:
    c.send("v0", "v1", "v2", at=10**12)
    c.poll((10**12, "v0"), (10**12 + 2, "v2"))


# --- with logs -------------------------------------------------------------------------------------------------------


@case(logged)
def stored_and_not_read(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.log((0, "v0"), (1, "v1"))


@case(logged, "lost_write")
def gone_at_the_end(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.log((0, "v0"))


@case(logged, "lost_write")
def read_once_and_gone_later(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.poll((0, "v0"), (1, "v1"))
    c.log((0, "v0"))


@case(logged)
def expired(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.log((1, "v1"), log_start=1)


@case(logged, "unseen")
def acknowledged_after_the_last_look(c: Case) -> None:
    c.send("v0", at=0)
    c.log((0, "v0"))
    c.send("v1", at=1)


@case(logged, "lost_write")
def overwritten_after_its_loss(c: Case) -> None:
    c.send("v0", at=0)
    c.send("v1", at=0, by="q")
    c.log((0, "v1"))


@case(logged, "ack_mismatch", "lost_write")
def taken_for_a_repetition(c: Case) -> None:
    c.send("v0", at=0)
    c.log((0, "v0"), look=0)
    c.send("w0", at=0, by="q")
    c.log((0, "v0"), look=1)


@case(logged, "ack_mismatch", "lost_write")
def taken_for_a_repetition_of_a_mirrored_record(c: Case) -> None:
    c.send("v0", at=0, on="A")
    c.log((0, "v0"), on="A")
    c.send("w0", at=0, on="B", by="q")
    c.log((0, "v0"), on="B")


@case(logged, "phantom", "inconsistent_offsets")
def taken_back(c: Case) -> None:
    c.send("v0", end="info")
    c.poll((0, "v0"))
    c.send("v1", at=0, by="q")
    c.log((0, "v1"))


@case(logged, "phantom")
def in_the_log_alone(c: Case) -> None:
    c.send("v0", at=0)
    c.log((0, "v0"), (1, "ghost"))


@case(logged, "lost_write")
def committed_for_the_client_and_aborted_in_the_log(c: Case) -> None:
    c.step("txn_begin", "T")
    c.send("v0", at=0, txn="T")
    c.step("txn_commit", "T")
    producer = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    c.log((0, "v0", producer), (1, None, {**producer, "control_type": "ABORT"}))


@case(logged)
def committed_and_committed(c: Case) -> None:
    c.step("txn_begin", "T")
    c.send("v0", at=0, txn="T")
    c.step("txn_commit", "T")
    producer = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    c.log((0, "v0", producer), (1, None, {**producer, "producer_epoch": 1, "control_type": "COMMIT"}))


@case(logged)
def two_replicas_of_which_one_lags(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.log((0, "v0"), broker=1, leader=2)
    c.log((0, "v0"), (1, "v1"), broker=2, leader=2)


@case(logged)
def empty(c: Case) -> None:
    c.log(log_end=0)


@case(logged)
def lag_at_the_end_of_the_mirror(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.log((0, "v0"), (1, "v1"), on="A")
    c.log((0, "v0"), on="B")


@case(again)
def deleted_and_made_again(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.poll((0, "v0"), (1, "v1"))
    target = [{"action": "target", "topic": c.topic}]
    c.h.event(c.name("admin"), "ok", "delete_topic", target, cluster="A")
    c.h.event(c.name("admin"), "ok", "create_topic", target, cluster="A")
    c.send("w0", at=0, by="q")
    c.log((0, "w0"))


# --- a real run ------------------------------------------------------------------------------------------------------


@case(ours)
def read_to_the_end(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.poll((0, "v0"))
    c.final(2, (0, "v0"), (1, "v1"))


@case(ours, "lost_write")
def not_in_the_final_read(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.poll((0, "v0"), (1, "v1"))
    c.final(2, (0, "v0"))


@case(ours, "unseen")
def final_read_cut_off(c: Case) -> None:
    c.send("v0", "v1", at=0)
    c.poll((0, "v0"))
    c.h.final_read("A", c.topic, 0, 2, complete=False, error="time")


@case(ours, "unseen")
def no_final_read_at_all(c: Case) -> None:
    c.send("v0", at=0)


@case(ours, "lost_write")
def one_record_of_an_unknown_operation_was_acknowledged(c: Case) -> None:
    c.send("v0", at=0, end="info")
    c.final(1)


@case(ours)
def an_unknown_operation_left_nothing(c: Case) -> None:
    c.send("v0", end="info")
    c.final(0)


@case(ours, "torn_transaction")
def hidden_from_read_committed(c: Case) -> None:
    c.whole((0, 0, "v0"), (1, 0, "v1"))
    c.final(2, (0, "v0"), p=0)
    c.final(2, (0, "v0"), p=0, isolation="read_committed")
    c.final(2, (0, "v1"), p=1)
    c.final(2, p=1, isolation="read_committed")


@pytest.fixture(scope="module", params=["all", "sieved"])
def found(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Kinds]]:
    """group → topic → kind → sentences; without the sieve and with it."""
    result: dict[str, Kinds] = {}
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "sieved":
            patch.setattr("checkers.views.tables.SMALL_ROWS", 0)
            patch.setattr("checkers.prefilter.spans.SPAN_ROWS", 8)  # so that there are boundaries between ranges
        for name in GROUPS:
            history = build(History(source="shatter" if name == "ours" else "jsonl"), GROUPS[name])
            tables = Tables.open(history.write(tmp_path_factory.mktemp("kinds") / name), spark)
            kinds: Kinds = defaultdict(lambda: defaultdict(list))
            try:
                assert tables.large == (request.param == "sieved")
                for checker in CLIENT_CHECKERS:
                    frame = CHECKERS[checker].check(tables)
                    for row in frame.collect() if frame is not None else ():
                        kinds[row.topic][row.kind].append(row.explain)
            finally:
                tables.close()
            result[name] = kinds
        yield result


@pytest.mark.parametrize(("group", "name"), [(g, n) for g, cases in GROUPS.items() for n in cases])
def test_kinds(found: dict[str, Kinds], group: str, name: str) -> None:
    assert set(found[group][name]) == GROUPS[group][name][1], found[group][name]


def test_nothing_else_is_named(found: dict[str, Kinds]) -> None:
    for group, kinds in found.items():
        assert set(kinds) <= set(GROUPS[group])
