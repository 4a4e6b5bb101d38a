"""Record batches as bytes, against an independent reader (kio's) and with planted damage."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch

from harness.wire import batches
from harness.wire.batch_headers import headers

KEYS = st.none() | st.binary(max_size=200)


@given(st.lists(st.tuples(KEYS, KEYS), min_size=1, max_size=20), st.integers(0, 2**40))
def test_a_built_batch_is_read_by_another_reader(records: list[tuple[bytes | None, bytes | None]], base: int) -> None:
    made = batches.build(records, timestamp_ms=1_700_000_000_123, base_offset=base, leader_epoch=7)
    read, used = read_batch(made, 0)
    assert used == len(made)
    assert [(r.key, r.value) for r in read.records] == records
    assert (read.base_offset, read.partition_leader_epoch) == (base, 7)


def test_headers_skip_a_cut_off_last_batch() -> None:
    one = batches.build([(b"k", b"v")], timestamp_ms=1, base_offset=10)
    two = batches.build([(b"k", b"v"), (None, None)], timestamp_ms=1, base_offset=11)
    for cut in range(1, len(two) + 1):
        data = one + two[:-cut]
        assert [(h.base_offset, h.end) for h in headers(data)] == [(10, len(one))]
    found = list(headers(one + two))
    assert [(h.base_offset, h.next_offset, h.records_count) for h in found] == [(10, 11, 1), (11, 13, 2)]
    assert found[-1].end == len(one + two)


def test_older_formats_are_refused() -> None:
    data = bytearray(batches.build([(b"k", b"v")], timestamp_ms=1))
    data[16] = 1
    with pytest.raises(ValueError, match="format 1"):
        list(headers(data))


def test_the_leader_epoch_is_outside_the_checksum_and_the_producer_id_inside() -> None:
    data = bytearray(batches.build([(b"k", b"v")], timestamp_ms=1, producer_id=5, producer_epoch=0, base_sequence=0))
    checksum = data[17:21]
    (batch,) = headers(data)
    batches.set_leader_epoch(data, batch, 99)
    batches.set_base_offset(data, batch, 1234)
    assert data[17:21] == checksum
    batches.set_producer_id(data, batch, -7)
    assert data[17:21] != checksum
    assert struct.unpack_from(">I", data, 17)[0] == crc32c(bytes(data[21:]))
    (read,) = headers(data)
    assert (read.base_offset, read.leader_epoch, read.producer_id) == (1234, 99, -7)


@pytest.mark.parametrize(("commit", "kind"), [(True, batches.COMMIT_TYPE), (False, batches.ABORT_TYPE)])
def test_transaction_markers(commit: bool, kind: int) -> None:
    made = batches.transaction_marker(
        commit=commit,
        base_offset=9,
        leader_epoch=3,
        producer_id=4000,
        producer_epoch=2,
        coordinator_epoch=6,
        timestamp_ms=1,
    )
    (batch,) = headers(made)
    assert batch.control
    assert batch.transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_offset, batch.next_offset) == (4000, 2, 9, 10)
    assert batches.control_type(made, batch) == kind
    read, _ = read_batch(made, 0)
    assert read.records[0].value == struct.pack(">hi", 0, 6)


def test_the_reset_marker_names_the_source() -> None:
    made = batches.pid_reset_marker(base_offset=9, leader_epoch=3, source_cluster_id="abc", timestamp_ms=1)
    (batch,) = headers(made)
    assert batch.control
    assert not batch.transactional
    assert batches.control_type(made, batch) == batches.MIRROR_PID_RESET_TYPE
    assert read_batch(made, 0)[0].records[0].value == b"\x00\x00\x04abc\x00"


def test_a_data_batch_has_no_control_type() -> None:
    made = batches.build([(struct.pack(">hh", 0, 1), b"")], timestamp_ms=1)
    (batch,) = headers(made)
    assert batches.control_type(made, batch) is None
