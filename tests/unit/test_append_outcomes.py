"""How operations of the workload `append` end: sends, transactions, polls and final reads, without any client."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from harness.history.ops import OpRecord, OpType
from workloads.base import WorkloadOptions
from workloads.clients.consumers import share
from workloads.clients.error_table import Classified, Context, classify
from workloads.clients.final_reader import Result
from workloads.clients.polling import Polled, take
from workloads.clients.sends import ACKED_UNKNOWN_OFFSET, Fate, decide, offset_fate, with_offsets
from workloads.clients.transactions import Txn, decide_txn
from workloads.final_reads import isolations

pytestmark = pytest.mark.unit

FAILED = Classified(OpType.FAIL, False, "NOT_ENOUGH_REPLICAS")
DOUBTFUL = Classified(OpType.INFO, False, "_MSG_TIMED_OUT")


# --- outcomes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fates", "expected"),
    [
        ([5, 6], (OpType.OK, None)),
        ([5, ACKED_UNKNOWN_OFFSET], (OpType.OK, None)),
        ([FAILED, FAILED], (OpType.FAIL, "NOT_ENOUGH_REPLICAS")),
        ([5, FAILED], (OpType.INFO, "NOT_ENOUGH_REPLICAS")),
        ([5, DOUBTFUL], (OpType.INFO, "_MSG_TIMED_OUT")),
        ([FAILED, DOUBTFUL], (OpType.INFO, "_MSG_TIMED_OUT")),
        ([5, None], (OpType.INFO, "stopped")),
        ([None], (OpType.INFO, "stopped")),
        ([FAILED, None], (OpType.INFO, "stopped")),
    ],
)
def test_a_send_is_judged_by_the_fate_of_all_its_records(
    fates: list[Fate], expected: tuple[OpType, str | None]
) -> None:
    assert decide(fates) == expected


@given(st.lists(st.sampled_from([3, ACKED_UNKNOWN_OFFSET, FAILED, DOUBTFUL, None]), min_size=1, max_size=6))
def test_a_send_is_definite_only_when_each_record_is(fates: list[Fate]) -> None:
    type_, error = decide(fates)
    assert (type_ is OpType.OK) == all(isinstance(f, int) for f in fates)
    assert (type_ is OpType.FAIL) == all(isinstance(f, Classified) and f.type is OpType.FAIL for f in fates)
    assert (error is None) == (type_ is OpType.OK)


def test_a_completion_has_exactly_the_acknowledged_offsets() -> None:
    records = [OpRecord("send", "t", n, None, f"v{n}", "p0") for n in range(4)]
    done = with_offsets(records, [0, ACKED_UNKNOWN_OFFSET, DOUBTFUL, None])
    assert [r.offset for r in done] == [0, None, None, None]
    assert [(r.topic, r.partition, r.value, r.key) for r in done] == [("t", n, f"v{n}", "p0") for n in range(4)]


def test_an_acknowledgement_without_an_offset_counts_as_acknowledged() -> None:
    assert offset_fate(None) == offset_fate(-1001) == ACKED_UNKNOWN_OFFSET
    assert offset_fate(0) == 0


def txn(**state: Any) -> Txn:
    made = Txn(name="t", records=[])
    for name, value in state.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"commit_tried": True, "committed": True}, (OpType.OK, None)),
        ({"deliberate_abort": True, "aborted": True}, (OpType.FAIL, "aborted")),
        ({"deliberate_abort": True, "error": DOUBTFUL}, (OpType.FAIL, "_MSG_TIMED_OUT")),
        ({"aborted": True, "error": DOUBTFUL}, (OpType.FAIL, "_MSG_TIMED_OUT")),
        ({"commit_tried": True, "aborted": True, "error": DOUBTFUL}, (OpType.FAIL, "_MSG_TIMED_OUT")),
        ({"commit_tried": True, "error": DOUBTFUL}, (OpType.INFO, "_MSG_TIMED_OUT")),
        ({"error": FAILED}, (OpType.FAIL, "NOT_ENOUGH_REPLICAS")),
        ({"stopped": True}, (OpType.FAIL, "stopped")),
        ({"stopped": True, "aborted": True}, (OpType.FAIL, "stopped")),
        ({"stopped": True, "commit_tried": True, "error": DOUBTFUL}, (OpType.INFO, "stopped")),
    ],
)
def test_a_transaction_ends_as_the_table_in_the_docstring_says(
    state: dict[str, Any], expected: tuple[OpType, str | None]
) -> None:
    assert decide_txn(txn(**state)) == expected


def test_only_the_first_error_of_a_transaction_is_named() -> None:
    failed = txn()
    failed.failed(KafkaError(KafkaError.NOT_ENOUGH_REPLICAS), Context.DELIVERY)
    failed.failed(KafkaError(KafkaError._STATE), Context.TXN_ABORT)
    assert failed.error == classify(KafkaError(KafkaError.NOT_ENOUGH_REPLICAS), context=Context.DELIVERY)


# --- polls --------------------------------------------------------------------------------------------------


def test_polled_messages_become_records_positions_ends_and_errors() -> None:
    polled = Polled()
    messages = [
        Message(topic="t", partition=0, offset=4, key=b"k", value=b"v\xff", leader_epoch=3),
        Message(topic="t", partition=0, offset=7, value=None),
        Message(topic="t", partition=1, offset=9, error=KafkaError(KafkaError._PARTITION_EOF)),
        Message(topic="t", partition=2, offset=-1, error=KafkaError(KafkaError._AUTO_OFFSET_RESET)),
    ]
    take(messages, polled)
    assert [(r.action, r.partition, r.offset, r.value, r.key) for r in polled.records] == [
        ("poll", 0, 4, "v\ufffd", "k"),
        ("poll", 0, 7, None, None),
    ]
    assert polled.records[0].leader_epoch == 3
    assert polled.positions["t", 0][0] == 8
    assert polled.ends == {("t", 1): 9}
    assert polled.out_of_range == {("t", 2)}
    assert polled.error is not None
    assert not polled.doomed


def test_the_error_that_ends_a_consumer_outweighs_an_earlier_one() -> None:
    polled = Polled()
    polled.failed(KafkaError(KafkaError._TRANSPORT))
    polled.failed(KafkaError(KafkaError._FATAL))
    assert polled.doomed
    assert polled.error is not None
    assert polled.error.name == "_FATAL"


@given(
    topics=st.integers(1, 5),
    per_topic=st.integers(1, 6),
    members=st.integers(1, 40),
    surprise=st.integers(0, 3),
)
def test_every_partition_has_a_reader_and_every_reader_a_partition(
    topics: int, per_topic: int, members: int, surprise: int
) -> None:
    found = per_topic + surprise  # a topic may have more partitions than expected
    readers: Counter[tuple[int, int]] = Counter()
    for member in range(members):
        mine = [
            (t, p)
            for t in range(topics)
            for p in share(
                topic=t, partitions=found, topics=topics, per_topic=per_topic, member=member, members=members
            )
        ]
        assert mine
        readers.update(mine)
    assert readers.keys() == {(t, p) for t in range(topics) for p in range(found)}
    if members <= topics * per_topic:
        assert set(readers.values()) == {1}


# --- final reads --------------------------------------------------------------------------------------------


def test_both_isolation_levels_are_read_when_transactions_or_the_option_ask_for_it() -> None:
    both = ("read_uncommitted", "read_committed")
    assert isolations(WorkloadOptions(producer="transactional", isolation="read_uncommitted")) == both
    assert isolations(WorkloadOptions(producer="idempotent", isolation="read_committed")) == both
    assert isolations(WorkloadOptions(producer="plain", isolation="read_uncommitted")) == ("read_uncommitted",)


@pytest.mark.parametrize(
    ("result", "reached"),
    [
        (Result("t", 0), False),
        (Result("t", 0, start=0, target=0, position=0), True),
        (Result("t", 0, start=0, target=10, position=9), False),
        (Result("t", 0, start=5, target=10, position=12), True),
    ],
)
def test_a_final_read_is_reached_by_position_not_by_records(result: Result, reached: bool) -> None:
    assert result.reached is reached


def test_a_final_read_that_was_cut_off_says_why() -> None:
    assert "offsets of t-3 on B could not be fetched" in Result("t", 3).why_not("B", "read_committed")
    cut = Result("t", 3, start=0, target=10, position=4)
    assert "read to 4 of 10" in cut.why_not("B", "read_uncommitted")
    hanging = Result("t", 3, start=0, target=10, position=4, stable=4)
    assert "a transaction is open" in hanging.why_not("B", "read_committed")
