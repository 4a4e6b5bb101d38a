"""The decoder against the output of Kafka's DumpLogSegments for real segment files, and against damaged copies."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path
from typing import Any

import crc32c
import pyarrow as pa
import pytest

from harness.core.errors import HistoryError
from harness.evidence.segments import Chunk, decode_segment

pytestmark = pytest.mark.unit
FILES = Path(__file__).parents[1] / "data" / "segments" / "A" / "1"
LOGS = sorted(FILES.rglob("*.log"))
_BATCH = re.compile(
    r"^baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<records_count>\d+) baseSequence: "
    r"(?P<base_sequence>-?\d+) lastSequence: -?\d+ producerId: (?P<producer_id>-?\d+) producerEpoch: "
    r"(?P<producer_epoch>-?\d+) partitionLeaderEpoch: (?P<leader_epoch>\d+) isTransactional: (?P<transactional>\w+) "
    r"isControl: (?P<control>\w+) .* position: (?P<position>\d+) \w+: (?P<timestamp>\d+) size: (?P<size>\d+) magic: 2 "
    r"compresscodec: (?P<compression>\w+) crc: (?P<crc>\d+) isvalid: (?P<crc_ok>\w+)$"
)
_RECORD = re.compile(
    r"^\| offset: (?P<offset>\d+) \w+: (?P<timestamp>\d+) keySize: (?P<key_size>-?\d+) "
    r"valueSize: (?P<value_size>-?\d+) sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<headers>.*?)\]"
    r"(?: endTxnMarker: (?P<marker>\w+) coordinatorEpoch: (?P<epoch>\d+))?(?: key: (?P<key>.*?))?"
    r"(?: payload: (?P<value>.*))?$"
)


def decode(data: bytes, name: str = "file") -> Chunk:
    chunks = list(decode_segment(memoryview(data), name=name))
    return Chunk(
        {k: pa.concat_arrays([c.batches[k] for c in chunks]) for k in chunks[0].batches},
        {k: pa.concat_arrays([c.records[k] for c in chunks]) for k in chunks[0].records},
        tuple(p for c in chunks for p in c.problems),
    )


def rows(columns: dict[str, pa.Array]) -> list[dict[str, Any]]:
    return pa.table(columns).to_pylist()


def typed(text: str | None) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else text


def read(name: str) -> bytes:
    return (FILES / name / "00000000000000000000.log").read_bytes()


def test_there_are_files_of_every_codec() -> None:
    codecs = {batch["compression"] for log in LOGS for batch in rows(decode(log.read_bytes()).batches)}
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert read("broker-snappy-0")[61:69] == b"\x82SNAPPY\x00", "the broker's snappy is framed by snappy-java"


@pytest.mark.parametrize("log", LOGS, ids=lambda p: f"{p.parent.name}-{int(p.stem)}")
def test_equals_what_kafka_prints(log: Path) -> None:
    chunk = decode(log.read_bytes())
    printed = log.with_suffix(".dump").read_text("utf-8", "replace").splitlines()
    expected = [{k: typed(v) for k, v in m.groupdict().items()} for m in map(_BATCH.match, printed) if m]
    batches = rows(chunk.batches)
    assert len(expected) >= 1
    assert [{k: b[k] for k in e} for b, e in zip(batches, expected, strict=True)] == expected
    assert chunk.problems == ()

    records = rows(chunk.records)
    lines = [m for m in map(_RECORD.match, printed) if m]
    assert len(lines) == sum(b["records_count"] for b in batches)
    for record, m in zip(records, lines, strict=True):
        assert [record[k] for k in ("offset", "timestamp", "sequence")] == [
            int(m[k]) for k in ("offset", "timestamp", "sequence")
        ]
        assert record["control_type"] == m["marker"]
        assert (record["key"] is None) == (int(m["key_size"]) < 0 or m["marker"] is not None)
        assert (record["value"] is None) == (int(m["value_size"]) < 0 or m["marker"] is not None)
        for part in ("key", "value"):
            if m[part] is not None and m[part].isascii() and "?" not in m[part] and m["marker"] is None:
                assert record[part] == m[part]
        assert (record["headers"] is None) == (m["headers"] == "" and '[["' not in (record["headers"] or ""))


def test_text_headers_and_bytes_that_are_not_text() -> None:
    records = rows(decode(read("client-zstd-0")).records)
    assert (records[9]["key"], records[9]["value"]) == ("ключ", "größer ✓")
    assert records[9]["headers"] == '[["h","1"],["ä",null]]'
    assert (records[10]["key"], records[10]["value"], records[10]["headers"]) == ("�", "��", '[["",""]]')
    assert (records[8]["key"], records[8]["value"]) == ("", "")
    assert records[11]["value"] == "x" * 300


def test_equal_records_have_equal_hashes_whatever_the_codec() -> None:
    hashes = [[r["value_hash"] for r in rows(decode(read(f"{side}-{c}-0")).records)][6:12]
              for side in ("client", "broker") for c in ("none", "gzip", "snappy", "lz4", "zstd")]  # fmt: skip
    assert all(h == hashes[0] for h in hashes)
    assert len(set(hashes[0])) == 6, "no key, no value and empty ones differ"


def test_markers_and_their_coordinator_epoch() -> None:
    batches = rows(decode(read("txn-0")).batches)
    markers = [(b["producer_id"], b["control_type"], b["coordinator_epoch"]) for b in batches if b["control"]]
    assert sorted(markers) == [(1, "COMMIT", 0)] * 3 + [(2, "ABORT", 0)] * 3
    assert all(b["control_type"] is None and b["coordinator_epoch"] is None for b in batches if not b["control"])


def test_compaction_keeps_the_range_of_a_batch() -> None:
    chunk = decode(read("compacted-0"))
    batch = rows(chunk.batches)[0]
    assert (batch["base_offset"], batch["last_offset"], batch["records_count"]) == (16, 23, 6)
    assert [r["offset"] for r in rows(chunk.records)] == [18, 19, 20, 21, 22, 23]


@pytest.mark.parametrize("cut", [8, 11, 16, 60, 61, 100])
def test_truncated_last_batch_is_reported_and_the_rest_kept(cut: int) -> None:
    data = read("client-none-0")
    size = rows(decode(data).batches)[0]["size"]
    chunk = decode(data[: size + cut])
    assert [b["base_offset"] for b in rows(chunk.batches)] == [0]
    assert [(p.kind, p.position) for p in chunk.problems] == [("truncated_batch", size)]


def test_truncation_before_the_last_segment_is_damage() -> None:
    data = read("client-none-0")
    chunks = list(decode_segment(memoryview(data[:-5]), name="x", last=False))
    assert [b["crc_ok"] for c in chunks for b in rows(c.batches)] == [True, False]


@pytest.mark.parametrize("zeros", [1, 12, 100, 5000])
def test_zeros_at_the_end(zeros: int) -> None:
    data = read("client-none-0")
    chunk = decode(data + bytes(zeros))
    assert chunk.batches["base_offset"].to_pylist() == [0, 12]
    assert [(p.kind, p.position) for p in chunk.problems] == [("zero_tail", len(data))]


def test_wrong_crc_is_marked_and_still_decoded() -> None:
    data = bytearray(read("client-none-0"))
    at = data.index(b"client-none:0:3")
    data[at] ^= 0x20
    chunk = decode(bytes(data))
    assert chunk.batches["crc_ok"].to_pylist() == [False, True]
    assert chunk.records["value"].to_pylist()[3] == "Client-none:0:3"
    assert len(chunk.records["value"]) == 24


@pytest.mark.parametrize("name", ["client-none-0", "client-gzip-0", "broker-snappy-0", "client-lz4-0", "client-zstd-0"])
def test_no_flipped_byte_crashes_or_goes_unseen(name: str) -> None:
    """Every byte of the first batch, altered: found by the CRC or as a problem, except what no CRC covers."""
    whole = read(name)
    size = rows(decode(whole).batches)[0]["size"]
    uncovered = set(range(8)) | set(range(12, 16))  # base offset and leader epoch are outside Kafka's CRC
    for at in range(size):
        data = bytearray(whole)
        data[at] ^= 0xFF
        chunks = list(decode_segment(memoryview(bytes(data)), name=name))
        oks = [ok for c in chunks for ok in c.batches["crc_ok"].to_pylist()]
        seen = not all(oks) or any(c.problems for c in chunks)
        assert seen != (at in uncovered), f"byte {at}"


def test_garbage_in_the_middle_ends_the_file() -> None:
    data = bytearray(read("client-none-0"))
    size = rows(decode(bytes(data)).batches)[0]["size"]
    data[size + 8 : size + 12] = struct.pack(">i", 3)
    chunk = decode(bytes(data))
    assert [(b["base_offset"], b["crc_ok"], b["size"]) for b in rows(chunk.batches)] == [
        (0, True, size),
        (12, False, len(data) - size),
    ]
    assert chunk.problems[0].kind == "corrupt_header"
    assert f"byte {size}" in chunk.problems[0].text


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_with_file_and_position(magic: int) -> None:
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 5) if magic else b"") + struct.pack(">ii", -1, 2) + b"hi"
    message = struct.pack(">qiI", 24, len(body) + 4, zlib.crc32(body)) + body
    data = read("client-none-0")
    with pytest.raises(HistoryError, match=rf"topic-0/7\.log: message format v{magic} at byte {len(data)}: only v2"):
        decode(data + message, "topic-0/7.log")


def batch(*, base_sequence: int, control: bool = False, key: bytes = b"", value: bytes = b"v", count: int = 3) -> bytes:
    """A hand-made batch, for what a broker does not write on demand."""

    def varint(n: int) -> bytes:
        z, out = (n << 1) ^ (n >> 63), b""
        while z > 0x7F:
            out += bytes([z & 0x7F | 0x80])
            z >>= 7
        return out + bytes([z])

    records = b""
    for i in range(count):
        body = b"\0" + varint(-200) + varint(i) + varint(len(key)) + key + varint(len(value)) + value + varint(0)
        records += varint(len(body)) + body
    attributes = 0x20 | 0x10 if control else 0
    rest = struct.pack(">hiqqqhii", attributes, count - 1, 1000, 1000, 7, 2, base_sequence, count) + records
    length = 4 + 1 + 4 + len(rest)
    return struct.pack(">qiibI", 10**12, length, 5, 2, crc32c.crc32c(rest)) + rest


def test_sequences_go_on_at_zero_after_the_largest() -> None:
    records = rows(decode(batch(base_sequence=2**31 - 2)).records)
    assert [r["sequence"] for r in records] == [2**31 - 2, 2**31 - 1, 0]
    assert [r["offset"] for r in records] == [10**12, 10**12 + 1, 10**12 + 2]
    assert {r["timestamp"] for r in records} == {800}


@pytest.mark.parametrize(
    ("number", "name"), [(0, "ABORT"), (1, "COMMIT"), (2, "LEADER_CHANGE"), (7, "PID_RESET"), (99, "TYPE_99")]
)
def test_control_types(number: int, name: str) -> None:
    data = batch(
        base_sequence=-1, control=True, key=struct.pack(">hh", 0, number), value=struct.pack(">hi", 0, 4), count=1
    )
    chunk = decode(data)
    row = rows(chunk.batches)[0]
    assert (row["control_type"], row["coordinator_epoch"]) == (name, 4 if number in (0, 1) else None)
    record = rows(chunk.records)[0]
    assert (record["control_type"], record["key"], record["value"]) == (name, None, None)


def test_records_that_do_not_fit_cost_only_their_batch() -> None:
    good, bad = batch(base_sequence=0), bytearray(batch(base_sequence=0))
    bad[61] = 0x7F  # a record longer than its batch
    bad[17:21] = struct.pack(">I", crc32c.crc32c(bytes(bad[21:])))
    chunk = decode(good + bytes(bad) + good)
    assert chunk.batches["crc_ok"].to_pylist() == [True, True, True]
    assert len(chunk.records["offset"]) == 6
    assert [p.kind for p in chunk.problems] == ["undecodable_records"]
    assert "its CRC32C is right" in chunk.problems[0].text


def test_large_files_come_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.evidence.segments.CHUNK_RECORDS", 30)
    one = batch(base_sequence=0)
    chunks = list(decode_segment(memoryview(one * 40), name="x"))
    assert [len(c.records["offset"]) for c in chunks] == [30, 30, 30, 30]


def test_empty_file() -> None:
    assert list(decode_segment(memoryview(b""), name="x")) == []
