"""The sieve without Spark: hashes, pairing in ranges, tests by value, by partition and offset, and by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkers.prefilter import follow, spans
from checkers.prefilter.buckets import BLOCK_BITS, by_blocks
from checkers.prefilter.events import first_pass
from checkers.prefilter.hashing import mixed, xxh64
from checkers.prefilter.order import bad_lines, poll_seams, polls_of, sends_in_order
from checkers.prefilter.packed import KINDS, Columns, batch, pack, picked, unpacked_by_kind
from checkers.prefilter.places import Context
from checkers.prefilter.rows import DONE, NEVER, NONE, OK, READ, combined_reads, combined_sends
from checkers.prefilter.values import Ends, by_value, conflicts
from harness.history.schema import TABLES

CONTEXT = Context(topics={}, incarnations={}, failbacks={}, decided=None, read_committed_by_default=False, buckets=3)
NOWHERE = np.array([-1])
NO_ENDS = Ends(
    place=np.array([0]),
    snapshot_ns=NOWHERE,
    log_start=np.array([0]),
    final_ns=NOWHERE,
    final_polls=np.array([False]),
    excused=np.array([False]),
    rc_start=np.array([0]),
    rc_end=NOWHERE,
    imported=True,
    buckets=3,
)


def columns(kind: str, *rows: tuple[int, ...]) -> Columns:
    """Columns of a kind of block, from rows; trailing columns may be left out."""
    last = {"sends": NONE, "reads": NEVER}
    rows = tuple((*row, last[kind]) if len(row) < len(KINDS[kind]) else row for row in rows)
    table = np.array(rows, np.int64).reshape(len(rows), len(KINDS[kind]))
    return dict(zip(KINDS[kind], table.T.copy(), strict=True))


def history(folder: Path, sends: int, *, per_file: int = 4, order: bool = True) -> dict[str, list[Path]]:
    """Files of a clean history: every send of one record is read by the poll after it; four events each."""
    ops: list[dict[str, Any]] = []
    records: list[dict[str, Any]] = []
    for n in range(sends):
        at = 4 * n
        record = {"position": 0, "topic": "t", "partition": n % 2, "value": f"v{n}"}
        for step, (process, f, kind) in enumerate(
            (("p", "send", "invoke"), ("p", "send", "ok"), ("c", "poll", "invoke"), ("c", "poll", "ok"))
        ):
            event = {"index": at + step, "time_ns": at + step, "process": process, "type": kind, "f": f, "cluster": "A"}
            ops.append({**event, "invoke_index": None if kind == "invoke" else at + step - 1})
        records.append({**record, "op_index": at, "action": "send"})
        records.append({**record, "op_index": at + 1, "action": "send", "offset": n // 2})
        records.append({**record, "op_index": at + 3, "action": "poll", "offset": n // 2})
    files: dict[str, list[Path]] = {}
    for table, rows in (("ops", ops), ("op_records", records)):
        (folder / table).mkdir(parents=True)
        if not order:
            rows = rows[::2] + rows[1::2]
        files[table] = []
        for start in range(0, len(rows), per_file):
            files[table].append(folder / table / f"part-{start:06d}.parquet")
            part = pa.Table.from_pylist(rows[start : start + per_file], schema=TABLES[table].schema)
            pq.write_table(part, files[table][-1])
    return files


def both_passes(files: dict[str, list[Path]], ends: Ends = NO_ENDS) -> dict[str, Columns]:
    """The results of both passes over a history, bucket by bucket, without Spark."""
    planned = spans.plan(files)
    numbers = [pa.RecordBatch.from_pydict({"id": list(range(len(planned)))})]
    first = pa.Table.from_batches(list(first_pass(CONTEXT, planned)(numbers)))
    found: dict[str, list[Columns]] = {"suspects": [], "bad_lines": [], "back": []}
    for bucket in range(CONTEXT.buckets):
        rows = unpacked_by_kind(first.filter(pa.compute.equal(first["bucket"], bucket)).to_batches())
        suspects, lines, _ = by_value(ends, rows["sends"], rows["reads"])
        found["suspects"] += [{"vh": suspects}, {"vh": conflicts(rows["at_offsets"])}]
        found["bad_lines"] += [{"line": lines}, bad_lines(rows["order"])]
        found["back"] += [rows["back"], poll_seams(rows["polls"])[0]]
    return {
        kind: {name: np.concatenate([part[name] for part in parts]) for name in KINDS[kind]}
        for kind, parts in found.items()
    }


def test_keys_are_those_of_the_algorithm_whatever_the_layout() -> None:
    # Of XXH64 with seed 42; tests/spark compares with Spark itself.
    texts = ["", "a", "as", "asd", "asdf", "0123456789", "x" * 31, "x" * 32, "é" * 40]
    keys = xxh64(pa.array(texts))
    assert len(set(keys.tolist())) == len(texts)
    assert xxh64(pa.array(["lead", *texts, "tail"]).slice(1, len(texts))).tolist() == keys.tolist()
    assert xxh64(pa.array(texts).dictionary_encode()).tolist() == keys.tolist()
    assert xxh64(pa.chunked_array([texts[:2], texts[2:]])).tolist() == keys.tolist()
    assert xxh64(pa.array([], pa.string())).tolist() == []


def test_mixed_keys_are_positive_and_depend_on_every_part() -> None:
    numbers = np.arange(-500, 7)
    keys = mixed(numbers, 7)
    assert (keys > 0).all()
    assert len(np.unique(keys)) == len(numbers)
    assert not np.isin(mixed(numbers, 8), keys).any()
    assert not np.isin(mixed(7, numbers), keys).any()


def test_blocks_keep_their_rows() -> None:
    rows = columns("at_offsets", *((p, o, p * o) for p in range(5) for o in range(7)))
    blocks = list(pack("at_offsets", rows, rows["place"] % 2))
    assert sorted(bucket for _, bucket, _ in blocks) == [0, 1]
    again = unpacked_by_kind([batch(blocks)])["at_offsets"]
    assert sorted(zip(*again.values(), strict=True)) == sorted(zip(*rows.values(), strict=True))


@pytest.mark.parametrize("rows", [1, 3, 5, 1000])
def test_a_clean_history_leaves_nothing_however_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(spans, "SPAN_ROWS", rows)
    files = history(tmp_path, 20)
    planned = spans.plan(files)
    assert (len(planned) > 5) == (rows < 10)
    assert spans.scattered(files, planned) == (rows == 1), "a file of four rows is read four times"
    found = both_passes(files)
    assert {kind: len(next(iter(rows.values()))) for kind, rows in found.items()} == dict.fromkeys(found, 0)


def test_tables_out_of_order_are_known_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "SPAN_ROWS", 8)
    files = history(tmp_path, 60, per_file=60, order=False)
    assert spans.scattered(files, spans.plan(files))


def test_a_completion_far_from_its_invocation_is_one_send() -> None:
    sends = columns(
        "sends",
        (1, 10, 5, 6, -1, 7, 0, 0, 100, -1),
        (1, 10, 5, 6, 3, 7, 0, DONE | OK, 200, 200),
        (2, 10, 5, 6, 4, 7, 0, DONE | OK, 200, 200),
    )
    found = combined_sends(picked(sends, [2, 1, 0]))
    assert [found[n].tolist() for n in ("vh", "offset", "bits", "invoked", "ended")] == [
        [1, 2],
        [3, 4],
        [DONE | OK, DONE | OK],
        [100, 200],
        [200, 200],
    ]


def value(sends: Columns, *reads: tuple[int, int]) -> bool:
    """Whether a value that is seen at (place, offset) is let through."""
    rows = columns("reads", *((1, place, place + 100, offset, 0, READ) for place, offset in reads))
    return len(by_value(NO_ENDS, sends, rows)[0]) > 0


@pytest.mark.parametrize(
    ("reads", "suspicious"),
    [(((5, 3),), False), ((), True), (((5, 4),), True), (((5, 3), (5, 4)), True), (((6, 3),), True)],
)
def test_an_acknowledged_value_must_be_at_its_offset_alone(
    reads: tuple[tuple[int, int], ...], suspicious: bool
) -> None:
    assert value(columns("sends", (1, 10, 5, 105, 3, 7, 0, DONE | OK, 1, 2)), *reads) == suspicious


def test_an_unacknowledged_value_may_be_anywhere_it_was_sent_to() -> None:
    send = columns("sends", (1, 10, 5, 105, -1, 7, 0, DONE, 1, 2))
    assert not value(send)
    assert not value(send, (5, 9))
    assert value(send, (6, 9))


def test_a_value_of_two_operations_or_none_is_let_through() -> None:
    assert value(columns("sends", *((1, op, 5, 105, 3, 7, 0, DONE | OK, 1, 2) for op in (10, 20))), (5, 3))
    assert value(columns("sends"), (5, 3))


def test_two_values_at_one_offset() -> None:
    spots = columns("at_offsets", (5, 1, 11), (5, 2, 12), (5, 1, 11), (5, 2, 13), (6, 1, 12), (5, 2, 14))
    assert sorted(conflicts(spots).tolist()) == [12, 13, 14]


def test_offsets_go_up_along_a_line_within_a_range_and_over_the_seam() -> None:
    def order(*rows: tuple[int, int, int]) -> Columns:
        line, op, offset = (np.array(c) for c in zip(*rows, strict=True))
        same = np.zeros(len(rows), np.int64)
        return sends_in_order({"line": line, "op": op, "position": same, "offset": offset, "bits": same + (DONE | OK)})

    def both(*parts: Columns) -> list[int]:
        names = KINDS["order"]
        return [int(line) for line in bad_lines({n: np.concatenate([p[n] for p in parts]) for n in names})["line"]]

    early, late = order((1, 1, 10), (1, 2, 20), (2, 3, 9)), order((1, 4, 21), (2, 5, 8))
    assert both(early, late) == [2]
    assert both(order((1, 1, 10), (1, 2, 9))) == [1]
    assert both(late) == []


def test_steps_between_polls_within_a_range_and_over_the_seam() -> None:
    def polls(*rows: tuple[int, int]) -> tuple[Columns, Columns, Columns]:
        index, offset = (np.array(c) for c in zip(*rows, strict=True))
        one = np.ones(len(rows), np.int64)
        return polls_of({"line": one, "place": one, "index": index, "position": one * 0, "offset": offset})

    first, back, gaps = polls((10, 0), (11, 1), (12, 4), (13, 3))
    assert (back["offset"].tolist(), back["before"].tolist(), back["before_index"].tolist()) == ([3], [4], [12])
    assert (gaps["offset"].tolist(), gaps["before"].tolist()) == ([4], [1])
    second = polls((20, 9))[0]
    back, gaps = poll_seams({n: np.concatenate([first[n], second[n]]) for n in KINDS["polls"]})
    assert (len(back["offset"]), gaps["before"].tolist(), gaps["before_index"].tolist()) == (0, [3], [13])


def test_a_gap_counts_when_something_lies_in_it_also_across_blocks() -> None:
    edge = 1 << BLOCK_BITS
    spots = columns(
        "at_offsets", (5, 1, 101), (5, 2, 102), (5, 3, 103), (5, 8, 108), (5, edge - 1, 109), (5, edge + 1, 110)
    )
    gaps = columns(
        "gaps",
        (5, 50, 0, 3, 1, 49),  # over 2
        (5, 60, 0, 8, 3, 59),  # over nothing
        (5, 70, 0, edge + 1, edge - 2, 69),  # over edge - 1, and the edge
    )
    out = list(follow.of_gaps(columns("wide"))([batch([*pack("at_offsets", spots), *pack("gaps", gaps)])]))
    found = unpacked_by_kind(out)
    assert sorted(found["back"]["index"].tolist()) == [50, 70]
    assert sorted(found["suspects"]["vh"].tolist()) == [102, 103, 109, 110]


def test_gaps_go_to_the_blocks_they_touch() -> None:
    edge = 1 << BLOCK_BITS
    gaps = columns("gaps", (5, 1, 0, 9, 1, 0), (5, 2, 0, edge + 1, edge - 1, 0), (5, 3, 0, 9 * edge, 1, 0))
    found = unpacked_by_kind([batch(by_blocks(3, gaps))])
    assert sorted(found["gaps"]["index"].tolist()) == [1, 2, 2]
    assert found["wide"]["index"].tolist() == [3]


def test_reads_of_one_value_at_one_place_are_one_row() -> None:
    reads = columns("reads", (1, 5, 105, 3, 0, 1), (1, 5, 105, 3, 0, 2), (1, 5, 105, 4, 0, 1))
    found = combined_reads(reads)
    assert sorted(zip(found["offset"].tolist(), found["bits"].tolist(), strict=True)) == [(3, 3), (4, 1)]
