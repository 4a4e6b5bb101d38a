"""Two members of one group take over from each other, in a Jepsen history with its rebalance log."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from checkers.judge.judge import judge
from harness.history.edn.importer import import_edn

SENT = 6
READS = ((0, (0, 1)), (1, (2, 3)), (0, (4, 5)))  # process, offsets


def history(*, told: bool) -> str:
    """Process 0 does not read what process 1 read meanwhile. told: its poll has a rebalance log that says so."""
    ops: list[str] = []

    def op(process: int, type_: str, rest: str) -> None:
        ops.append(f"{{:index {len(ops)} :time {len(ops) * 1000} :type :{type_} :process {process} {rest}}}")

    for n in range(SENT):
        op(9, "invoke", f":f :send :value [[:send 0 {n + 1}]]")
        op(9, "ok", f":f :send :value [[:send 0 [{n} {n + 1}]]]")
    for process in (0, 1):
        op(process, "invoke", ":f :subscribe :value [0]")
        op(process, "ok", ":f :subscribe :value [0]")
    for process, offsets in READS:
        pairs = " ".join(f"[{n} {n + 1}]" for n in offsets)
        log = " :rebalance-log [{:type :revoke :keys [0]} {:type :assign :keys [0]}]" if told else ""
        op(process, "invoke", ":f :poll :value [[:poll]]")
        op(process, "ok", f":f :poll :value [[:poll {{0 [{pairs}]}}]]{log}")
    return "\n".join(ops) + "\n"


@pytest.mark.parametrize(("told", "found"), [(True, set()), (False, {"poll_skip"})], ids=["rebalanced", "steady"])
def test_a_poll_with_a_rebalance_may_begin_elsewhere(
    spark: SparkSession, tmp_path: Path, told: bool, found: set[str]
) -> None:
    file = tmp_path / "history.edn"
    file.write_text(history(told=told), encoding="utf-8")
    run = import_edn(file, tmp_path / "run")
    assert {finding.kind.name for finding in judge(run, "kafka-clean", spark).findings} == found
