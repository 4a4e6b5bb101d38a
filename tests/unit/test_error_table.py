"""Every row of the error table, in every context, and every code that the client knows."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from harness.core.errors import StorageError
from harness.history.ops import OpType
from workloads.clients.error_table import READ_ONLY_TOPIC, ROWS, Context, classify, error_name, kafka_error

pytestmark = pytest.mark.unit

CODES = {
    name: getattr(KafkaError, name)
    for name in dir(KafkaError)
    if name.strip("_").isupper() and isinstance(getattr(KafkaError, name), int)
}

# The definite errors, spelled out
_DEFINITE = """TOPIC_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    INVALID_PRODUCER_EPOCH TOPIC_EXCEPTION INVALID_REPLICATION_FACTOR UNKNOWN_TOPIC_OR_PART MSG_SIZE_TOO_LARGE
    RECORD_LIST_TOO_LARGE NOT_ENOUGH_REPLICAS READ_ONLY_TOPIC"""
_REPLACED = "PRODUCER_FENCED _FENCED OUT_OF_ORDER_SEQUENCE_NUMBER INVALID_TXN_STATE _STATE"
_UNKNOWN = """REQUEST_TIMED_OUT _TIMED_OUT _MSG_TIMED_OUT _TRANSPORT NETWORK_EXCEPTION UNKNOWN
    NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_LEADER_FOR_PARTITION _PURGE_QUEUE _PURGE_INFLIGHT
    DUPLICATE_SEQUENCE_NUMBER"""


def error_of(name: str, *, fatal: bool = False) -> KafkaError:
    return KafkaError(READ_ONLY_TOPIC if name == "READ_ONLY_TOPIC" else CODES[name], fatal=fatal)


def test_the_client_knows_well_over_a_hundred_codes_and_every_row_names_one() -> None:
    assert len(CODES) > 150
    assert set(ROWS) - set(CODES) == {"READ_ONLY_TOPIC"}


@pytest.mark.parametrize("name", _DEFINITE.split())
def test_definite_errors_fail_and_keep_the_client(name: str) -> None:
    found = classify(error_of(name), context=Context.DELIVERY, only_attempt=True)
    assert (found.type, found.replace_client, found.name) == (OpType.FAIL, False, name)


@pytest.mark.parametrize("name", _REPLACED.split())
def test_fenced_out_of_order_and_error_state_fail_and_replace_the_client(name: str) -> None:
    found = classify(error_of(name), context=Context.DELIVERY, only_attempt=True)
    assert (found.type, found.replace_client) == (OpType.FAIL, True)


@pytest.mark.parametrize("name", _UNKNOWN.split())
@pytest.mark.parametrize("only_attempt", [True, False])
def test_unknown_errors_are_info_whatever_the_attempt(name: str, only_attempt: bool) -> None:
    found = classify(error_of(name), context=Context.DELIVERY, only_attempt=only_attempt)
    assert (found.type, found.replace_client) == (OpType.INFO, False)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_each_row_is_as_stated_and_applies_to_the_only_attempt(name: str) -> None:
    row = ROWS[name]
    found = classify(error_of(name), context=Context.DELIVERY, only_attempt=True)
    assert (found.type, found.replace_client, found.name) == (row.type, row.replace_client, name)
    assert row.why


@pytest.mark.parametrize("name", sorted(ROWS))
def test_no_answer_to_a_retried_record_is_a_definite_failure(name: str) -> None:
    assert classify(error_of(name), context=Context.DELIVERY, only_attempt=False).type is OpType.INFO


def test_every_other_code_is_info_and_keeps_the_client() -> None:
    others = set(CODES) - set(ROWS)
    assert others
    for name in others:
        found = classify(error_of(name), context=Context.DELIVERY, only_attempt=True)
        assert (found.type, found.replace_client, found.name) == (OpType.INFO, False, error_name(error_of(name)))


def test_a_code_unknown_to_the_client_is_info_under_its_number() -> None:
    found = classify(KafkaError(31999), context=Context.DELIVERY, only_attempt=True)
    assert found.type is OpType.INFO
    assert "31999" in found.name


def test_the_read_only_error_of_cluster_mirroring_has_a_name() -> None:
    assert error_name(KafkaError(134)) == "READ_ONLY_TOPIC"


@pytest.mark.parametrize("context", list(Context))
def test_a_fatal_error_ends_its_client_in_every_context(context: Context) -> None:
    assert classify(error_of("_TRANSPORT", fatal=True), context=context).replace_client


@pytest.mark.parametrize(
    "context", [Context.ENQUEUE, Context.TXN_BEGIN, Context.TXN_ABORT, Context.POLL, Context.QUERY], ids=str
)
def test_operations_that_wrote_nothing_always_fail(context: Context) -> None:
    types = {name: classify(error_of(name), context=context).type for name in CODES}
    assert types == dict.fromkeys(CODES, OpType.FAIL)


def test_an_error_of_a_commit_is_never_definite() -> None:
    types = {name: classify(error_of(name), context=Context.TXN_COMMIT, only_attempt=True).type for name in CODES}
    assert types == dict.fromkeys(CODES, OpType.INFO)


def test_errors_that_end_a_producer_do_not_end_a_reader() -> None:
    assert classify(error_of("_STATE"), context=Context.ENQUEUE).replace_client
    assert not classify(error_of("_STATE"), context=Context.POLL).replace_client
    assert classify(error_of("_MAX_POLL_EXCEEDED"), context=Context.POLL).replace_client


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_the_kafka_error_is_found_in_what_the_client_raises() -> None:
    fenced = KafkaError(KafkaError._FENCED, fatal=True)
    assert kafka_error(raised(KafkaException(fenced))) == fenced
    assert kafka_error(raised(SystemError("result with an exception set"), KafkaException(fenced))) == fenced


def test_a_fatal_error_that_the_client_lost_still_ends_it() -> None:
    found = kafka_error(raised(SystemError("returned NULL without setting an exception")))
    assert found is not None
    assert found.fatal()
    assert classify(found, context=Context.DELIVERY).replace_client


def test_an_exception_of_our_own_inside_a_callback_is_no_kafka_error() -> None:
    assert kafka_error(raised(SystemError("in a callback"), StorageError("the disk is full"))) is None
