"""Cycles of transactions: planted ones of every form and length, and histories without a cycle."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import Find
from literal import History
from pyspark.sql import SparkSession

from checkers.clients import cycles
from checkers.clients.cycles import CHECKER
from checkers.judge.judge import judge
from harness.history.edn.importer import import_edn

Record = tuple[str, int, str]
"""Topic and partition ("t-0"), offset, value."""
Found = Counter[tuple[str, str | None, int]]
G0, WR, MIXED = ("cycle_G0", None), ("cycle_G1c", "wr"), ("cycle_G1c", "mixed")
FAR = 10**12


class Story:
    """Transactions of one case; its topics, values and processes have its name."""

    def __init__(self, history: History, name: str) -> None:
        self.h, self.name = history, name

    def _records(self, action: str, records: Sequence[Record], *, acked: bool = True) -> list[dict[str, Any]]:
        found = []
        for place, offset, value in records:
            topic, partition = place.rsplit("-", 1)
            row = {"action": action, "topic": f"{self.name}.{topic}", "partition": int(partition)}
            found.append({**row, "value": f"{self.name}.{value}", "offset": offset if acked else None})
        return found

    def txn(
        self,
        *sent: Record,
        read: Sequence[Record] = (),
        end: str = "ok",
        on: str = "A",
        by: str = "p",
        meanwhile: Callable[[], None] = lambda: None,
        **columns: Any,
    ) -> None:
        """A transaction as one operation; `meanwhile` writes what happens between its invocation and completion."""
        columns = {"cluster": on, "isolation": "read_committed", "phase": "load", **columns}
        who = f"{self.name}.{by}"
        invoke = self.h.event(who, "invoke", "txn", self._records("send", sent, acked=False), **columns)
        meanwhile()
        records = self._records("send", sent, acked=end == "ok") + self._records("poll", read)
        self.h.event(who, end, "txn", records, invoke_index=invoke, **columns)

    def steps(self, name: str, f: str, records: Sequence[Record] = (), on: str = "A", **columns: Any) -> None:
        """A step of a transaction: send, poll, txn_begin, txn_commit, txn_abort; a send or poll without a name is
        outside transactions."""
        columns = {"cluster": on, "txn": f"{self.name}.{name}" if name else None, "phase": "load", **columns}
        who = f"{self.name}.{name}"
        before = self._records("send", records, acked=False) if f == "send" else []
        invoke = self.h.event(who, "invoke", f, before, **columns)
        self.h.event(who, "ok", f, self._records(f, records), invoke_index=invoke, **columns)

    def polled(self, *read: Record, on: str = "A") -> None:
        """A poll outside transactions."""
        self.h.event(f"{self.name}.c", "ok", "poll", self._records("poll", read), cluster=on, phase="load")


Tell = Callable[[Story], None]
CASES: dict[str, tuple[Tell, Found]] = {}


def case(*expected: tuple[tuple[str, str | None], int]) -> Callable[[Tell], Tell]:
    """(kind, form) and length of each cycle that must be found."""

    def add(tell: Tell) -> Tell:
        CASES[tell.__name__] = (tell, Counter((*kind, length) for kind, length in expected))
        return tell

    return add


@case((G0, 2))
def two_writers(s: Story) -> None:
    s.txn(("t-0", 0, "a"), ("t-1", 1, "b"), by="p")
    s.txn(("t-0", 1, "c"), ("t-1", 0, "d"), by="q")


@case()
def two_writers_in_one_order(s: Story) -> None:
    s.txn(("t-0", 0, "a"), ("t-1", 0, "b"))
    s.txn(("t-0", 1, "c"), ("t-1", 1, "d"))


@case((G0, 2))
def interleaved_in_one_partition_far_out(s: Story) -> None:
    s.txn(("t-0", FAR, "a"), ("t-0", FAR + 7, "b"))
    s.txn(("t-0", FAR + 3, "c"), on="A", by="q")


@case((G0, 3))
def three_writers_over_topics_on_b(s: Story) -> None:
    s.txn(("t-0", 4, "a1"), ("v-2", 9, "a2"), on="B")
    s.txn(("t-0", 8, "b1"), ("u-0", 0, "b2"), on="B")
    s.txn(("u-0", 5, "c1"), ("v-2", 3, "c2"), on="B")


@case()
def the_same_partition_of_two_clusters(s: Story) -> None:
    s.txn(("t-0", 0, "a1"), ("t-1", 0, "a2"), on="A")
    s.txn(("t-0", 1, "b1"), ("t-1", 1, "b2"), on="A")
    s.txn(("t-0", 1, "c1"), on="B")
    s.txn(("t-0", 0, "d1"), on="B")
    s.polled(("t-0", 0, "b1"), ("t-0", 1, "a1"), on="C")  # the order on a mirror does not order transactions


@case((WR, 2))
def each_reads_the_other(s: Story) -> None:
    s.txn(("t-0", 0, "a"), read=[("t-1", 0, "b")])
    s.txn(("t-1", 0, "b"), read=[("t-0", 0, "a")])


@case((MIXED, 2))
def reads_who_overtook_it(s: Story) -> None:
    """Allowed: w begins and commits while r is open, after r's record in one partition, and r reads it in another."""
    w = partial(s.txn, ("u-0", 1, "b2"), ("u-1", 0, "c2"), by="w")
    s.txn(("u-0", 0, "a2"), read=[("u-1", 0, "c2")], by="r", meanwhile=w)


@case()
def each_reads_the_other_uncommitted(s: Story) -> None:
    s.txn(("t-0", 0, "a"), read=[("t-1", 0, "b")], isolation="read_uncommitted")
    s.txn(("t-1", 0, "b"), read=[("t-0", 0, "a")], isolation="read_uncommitted")


@case((WR, 4))
def four_readers_over_topics(s: Story) -> None:
    names = "abcd"
    for i, name in enumerate(names):
        after = (i + 1) % 4
        s.txn((f"t{i}-{i}", FAR + i, name), read=[(f"t{after}-{after}", FAR + after, names[after])])


@case((WR, 2))
def over_two_clusters(s: Story) -> None:
    s.txn(("t-0", 0, "a"), read=[("t-1", 5, "b")], on="A")
    s.txn(("t-1", 0, "b"), read=[("t-0", 5, "a")], on="B")


@case((MIXED, 2))
def overtaken_and_read(s: Story) -> None:
    s.txn(("t-0", 0, "a"), read=[("t-1", 0, "c")])
    s.txn(("t-0", 1, "b"), ("t-1", 0, "c"))


@case((MIXED, 3))
def through_a_record_of_no_transaction(s: Story) -> None:
    s.txn(("t-0", 0, "a"), ("t-1", 1, "d"))
    s.steps("", "send", [("t-0", 1, "b")])
    s.txn(("t-1", 0, "c"), read=[("t-0", 1, "b")])


@case()
def records_of_no_transaction_between_each_other(s: Story) -> None:
    s.steps("", "send", [("t-0", 0, "a"), ("t-0", 2, "b")])
    s.steps("", "send", [("t-0", 1, "c"), ("t-0", 3, "d")])
    s.txn(("t-0", 4, "e"))


@case((G0, 2), (WR, 2))
def two_components(s: Story) -> None:
    two_writers(s)
    s.txn(("u-0", 0, "e"), read=[("u-1", 0, "f")])
    s.txn(("u-1", 0, "f"), read=[("u-0", 0, "e")])


@case((WR, 3))
def a_ring_with_a_chord(s: Story) -> None:
    names = "abcdef"
    for i, name in enumerate(names):
        after = names[(i + 1) % 6]
        read = [(f"t-{names.index(n)}", 0, n) for n in (after, *("d" if name == "b" else ""), *("a" if i == 3 else ""))]
        s.txn((f"t-{i}", 0, name), read=read)  # a b c d e f a, and b → d, d → a


@case((G0, 2), (MIXED, 2))
def writers_of_two_orders_one_of_whom_reads(s: Story) -> None:
    s.txn(("t-0", 0, "a"), ("t-1", 1, "b"))
    s.txn(("t-0", 1, "c"), ("t-1", 0, "d"), read=[("t-0", 0, "a")])


@case((WR, 2))
def of_steps(s: Story) -> None:
    for name in ("x", "y"):
        s.steps(name, "txn_begin")
    s.steps("x", "send", [("t-0", 0, "a")])
    s.steps("y", "send", [("t-1", 0, "b")])
    s.steps("x", "poll", [("t-1", 0, "b")], isolation="read_committed")
    s.steps("y", "poll", [("t-0", 0, "a")], isolation="read_committed")
    for name in ("x", "y"):
        s.steps(name, "txn_commit")


@case()
def of_steps_one_aborted(s: Story) -> None:
    for name in ("x", "y"):
        s.steps(name, "txn_begin")
    s.steps("x", "send", [("t-0", 0, "a"), ("t-1", 1, "b")])
    s.steps("y", "send", [("t-0", 1, "c"), ("t-1", 0, "d")])
    s.steps("x", "txn_commit")
    s.steps("y", "txn_abort")


@case()
def aborted_and_read(s: Story) -> None:
    s.txn(("t-0", 0, "a"), read=[("t-1", 0, "b")])
    s.txn(("t-1", 0, "b"), read=[("t-0", 0, "a")], end="fail")


@case((G0, 2))
def unknown_but_read(s: Story) -> None:
    s.txn(("t-0", 0, "a"), ("t-1", 1, "b"))
    s.txn(("t-0", 1, "c"), ("t-1", 0, "d"), end="info")
    s.polled(("t-0", 1, "c"))
    s.polled(("t-1", 0, "d"))


@case()
def unknown_and_not_read(s: Story) -> None:
    s.txn(("t-0", 0, "a"), ("t-1", 1, "b"))
    s.txn(("t-0", 1, "c"), ("t-1", 0, "d"), end="info")


@case()
def one_process_after_the_other(s: Story) -> None:
    """Only process order, which is not part of the graph, would close the cycle."""
    s.txn(("t-0", 0, "a"), read=[("t-1", 0, "b")], by="p")
    s.txn(("t-1", 0, "b"), by="p")


@case()
def its_own_record(s: Story) -> None:
    s.txn(("t-0", 0, "a"), ("t-0", 1, "b"), read=[("t-0", 0, "a")])


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The cycles that the judge finds, over all cases at once."""
    history = History()
    for name, (tell, _) in CASES.items():
        tell(Story(history, name))
    run = history.write(tmp_path_factory.mktemp("cycles") / "run")
    judgement = judge(run, "kafka-clean", spark)
    assert not [why for why in judgement.unjudged.values() if "Error" in why], judgement.unjudged
    rows = spark.read.parquet(str(run / "results" / "anomalies")).where("kind like 'cycle%'").collect()
    return [row.asDict() for row in rows]


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, found: list[dict[str, Any]]) -> None:
    mine = [row for row in found if row["topic"].startswith(f"{name}.")]
    assert Counter((r["kind"], r["form"], r["rank"]) for r in mine) == CASES[name][1]
    for row in mine:
        assert len(row["op_indices"]) == row["rank"]
        assert all(f"{index} " in row["explain"] for index in row["op_indices"])


def test_the_sentence_names_every_step_of_the_cycle(found: list[dict[str, Any]]) -> None:
    (row,) = [r for r in found if r["topic"].startswith("overtaken_and_read.")]
    first, second = row["op_indices"]
    assert row["cluster"] == "A"
    assert row["explain"].endswith(
        f": {first} wrote offset 0 of overtaken_and_read.t-0 on A before {second} wrote offset 1; "
        f"{second} wrote offset 0 of overtaken_and_read.t-1 on A, which {first} read"
    )


LONG = 10_000


def line(h: History, numbers: Sequence[int], *, ring: bool = False) -> History:
    """Transactions in the order of `numbers`; each n reads what n - 1 wrote."""
    s = Story(h, "long")
    for n in numbers:
        before = n - 1 if n or not ring else LONG - 1
        s.txn((f"t-{n % 8}", n, f"v{n}"), read=[(f"t-{before % 8}", before, f"v{before}")] if before >= 0 else ())
    return h


@pytest.mark.parametrize("backwards", [False, True])
def test_a_long_chain_without_a_cycle(backwards: bool, find: Find) -> None:
    """Backwards, every dependency goes against the numbering, so that nothing can be pruned."""
    h = line(History(), range(LONG)[:: -1 if backwards else 1])
    began = time.monotonic()
    assert find(CHECKER, h) == []
    assert time.monotonic() - began < 60


def test_a_long_ring(find: Find) -> None:
    """Neighbors of one partition are eight apart: the cycle over them is the shorter one, with one read."""
    (row,) = find(CHECKER, line(History(), range(LONG), ring=True))
    assert (row["kind"], row["form"], row["rank"], len(row["op_indices"])) == ("cycle_G1c", "wr", LONG, LONG)


def test_a_history_without_transactions_is_not_searched(find: Find, spark: SparkSession, tmp_path: Path) -> None:
    h = History()
    h.send("p", "A", "t", 0, "a", offset=0)
    h.poll("c", "A", "t", 0, (0, "a"))
    assert find(CHECKER, h) == []
    assert "cycle_G1c" not in judge(h.write(tmp_path / "none"), "kafka-clean", spark).looked_at


EDN = """{:index 0, :type :invoke, :process 0, :f :txn, :value [[:send 0 1] [:poll]]}
{:index 1, :type :invoke, :process 1, :f :txn, :value [[:send 1 1] [:poll]]}
{:index 2, :type :ok, :process 0, :f :txn, :value [[:send 0 [0 1]] [:poll {1 [[0 1]]}]]}
{:index 3, :type :ok, :process 1, :f :txn, :value [[:send 1 [0 1]] [:poll {0 [[0 1]]}]]}
{:index 4, :type :invoke, :process 2, :f :poll, :value [[:poll]]}
{:index 5, :type :ok, :process 2, :f :poll, :value [[:poll {1 [[0 1]]}]]}
"""
"""Values as in Jepsen's generators: from 1 on every key."""


@pytest.mark.parametrize("fault", [True, False])
def test_operations_of_jepsen(fault: bool, spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "history.edn"
    file.write_text(EDN if fault else EDN.replace("{1 [[0 1]]}", "{}", 1), encoding="utf-8")
    judgement = judge(import_edn(file, tmp_path / "run"), "kafka-clean", spark)
    assert judgement.verdict == ("invalid" if fault else "valid"), judgement.why
    assert {f.kind.name: f.count for f in judgement.findings} == ({"cycle_G1c": 1} if fault else {})
    assert "cycle_G1c" in judgement.looked_at


def test_a_component_too_large_for_a_worker_is_unknown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycles, "MOST_EDGES", 1)
    h = History()
    reads_who_overtook_it(Story(h, "s"))
    judgement = judge(h.write(tmp_path / "run"), "kafka-clean", spark)
    assert judgement.verdict == "unknown", judgement.why
    assert "2 dependencies of transactions are connected" in judgement.why
    assert {"cycle_G0", "cycle_G1c"} <= set(judgement.unjudged)


def test_contracts_on_cycles(spark: SparkSession, tmp_path: Path) -> None:
    h = History()
    s = Story(h, "s")
    two_writers(s)
    reads_who_overtook_it(s)
    for place, values in {"t-0": "ac", "t-1": "db", "u-0": ["a2", "b2"], "u-1": ["c2"]}.items():
        s.polled(*((place, offset, value) for offset, value in zip(itertools.count(), values)))
    judgement = judge(h.write(tmp_path / "run"), "kafka-clean", spark)
    assert judgement.verdict == "valid", judgement.why
    assert {f.kind.name: (f.count, str(f.level)) for f in judgement.findings} == {
        "cycle_G0": (1, "allowed"),
        "cycle_G1c": (1, "allowed"),
    }
