"""States, writes, epochs, state keys and memory: planted faults of each kind and their clean twins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from stories import STRICT, Story, judged


def stop(h: Story, topic: str) -> None:
    """An operation that stops the mirror of a topic, as an importer stores it."""
    invoke = h.event("admin", "invoke", "mirror_stop", cluster="B")
    h.event("admin", "ok", "mirror_stop", cluster="B", invoke_index=invoke)
    h.row("mirror_states", cluster="B", topic=topic, partition=0, state="STOPPED", event="stop")


def test_writes(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)
    for topic, state in (("going", "MIRRORING"), ("paused", "PAUSED"), ("failed", "FAILED")):
        h.state(topic, state)
        h.send(f"p {topic}", "B", topic, 0, f"{topic}/v", offset=3)
    h.state("refused", "MIRRORING")
    h.send("p refused", "B", "refused", 0, "refused/v", end="fail")
    h.send("p elsewhere", "A", "refused", 0, "elsewhere/v", offset=0)
    h.send("p other", "B", "unmirrored", 0, "other/v", offset=0)
    h.state("stopped", "MIRRORING")
    h.send("p early", "B", "stopped", 0, "stopped/early", offset=4)
    stop(h, "stopped")
    h.send("p late", "B", "stopped", 0, "stopped/late", offset=5)
    # In the middle of the stop it is unknown.
    h.state("closing", "MIRRORING")
    invoke = h.event("admin", "invoke", "mirror_stop", cluster="B")
    h.send("p closing", "B", "closing", 0, "closing/v", offset=5)
    h.event("admin", "ok", "mirror_stop", cluster="B", invoke_index=invoke)
    h.row("mirror_states", cluster="B", topic="closing", partition=0, state="STOPPED", event="stop")
    # A refusal without a reason.
    h.state("unclear", "MIRRORING")
    record = {"action": "send", "topic": "unclear", "partition": 0, "value": "unclear/v"}
    begun = h.event("p unclear", "invoke", "send", [record], cluster="B")
    h.event("p unclear", "fail", "send", [record], cluster="B", invoke_index=begun, error="UNKNOWN_SERVER_ERROR")
    kind = "written_while_mirrored"
    assert judged(spark, h, tmp_path / "run") == [
        (kind, "accepted", "B", "failed", 3, "failed/v"),
        (kind, "accepted", "B", "going", 3, "going/v"),
        (kind, "accepted", "B", "paused", 3, "paused/v"),
        (kind, "accepted", "B", "stopped", 4, "stopped/early"),
        (kind, "unclear", "B", "unclear", None, "unclear/v"),
    ]


def test_edges(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)
    for topic, states in {
        "life": "PREPARING MIRRORING PAUSING PAUSED PREPARING MIRRORING STOPPING STOPPED PREPARING MIRRORING",
        "sampled": "MIRRORING PAUSED MIRRORING STOPPED PREPARING STOPPED",
        "failing": "MIRRORING FAILED MIRRORING FAILED STOPPED",
        "revived": "MIRRORING STOPPED MIRRORING",
        "taken-back": "MIRRORING STOPPING MIRRORING",
        "unpaused": "PAUSING MIRRORING",
        "dead-paused": "STOPPED PAUSED",
        "refused": "MIRRORING",
        "obeyed": "MIRRORING",
    }.items():
        for state in states.split():
            h.state(topic, state)
    for topic, after in (("refused", "PAUSED"), ("obeyed", "MIRRORING")):
        target: list[dict[str, Any]] = [{"action": "target", "topic": topic, "partition": 0}]
        invoke = h.event("admin", "invoke", "mirror_pause", target, cluster="B")
        h.event("admin", "fail", "mirror_pause", target, cluster="B", invoke_index=invoke, error="INVALID_STATE")
        h.state(topic, after)
    assert judged(spark, h, tmp_path / "run") == [
        ("state_graph", "edge", "B", "dead-paused", None, None),
        ("state_graph", "edge", "B", "revived", None, None),
        ("state_graph", "edge", "B", "taken-back", None, None),
        ("state_graph", "edge", "B", "unpaused", None, None),
        ("state_graph", "refused", "B", "refused", None, None),
    ]


def test_edges_in_the_state_topic(spark: SparkSession, tmp_path: Path) -> None:
    """Its records are a path of their own: stored later than descriptions show the same states, and without gaps."""
    h = Story(**STRICT)
    paths = {
        "paused": "LOG_TRUNCATION EPOCH_FENCING MIRRORING PAUSING PAUSED MIRRORING STOPPING STOPPED",
        "started-again": "MIRRORING STOPPING STOPPED LOG_TRUNCATION EPOCH_FENCING MIRRORING",
        "failing": "FAILED LOG_TRUNCATION MIRRORING FAILED STOPPED",
        "revived": "MIRRORING STOPPING STOPPED MIRRORING",
        "taken-back": "MIRRORING STOPPING MIRRORING",
    }
    for topic, states in paths.items():
        for described in ("MIRRORING", "STOPPED"):
            h.state(topic, described)
        for state in states.split():
            h.state(topic, state, event="log")
    h.state("described", "STOPPED")
    h.state("described", "MIRRORING", event="log")
    assert judged(spark, h, tmp_path / "run") == [
        ("state_graph", "edge", "B", "revived", None, None),
        ("state_graph", "edge", "B", "taken-back", None, None),
    ]


def test_epochs(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)

    def epoch(cluster: str, topic: str, number: int) -> None:
        h.at("log_ends", cluster=cluster, topic=topic, partition=0, leader_epoch=number)

    for topic, there in (("behind", 4), ("level", 5), ("above", 9)):
        epoch("A", topic, 5)
        epoch("B", topic, there)
    epoch("B", "later", 5)
    epoch("A", "later", 9)
    for topic, first, second in (("backwards", 3, 2), ("forwards", 2, 3)):
        records = ((i, f"{topic}/{i}", {"leader_epoch": e}) for i, e in enumerate((first, second)))
        h.log("A", topic, 0, *records, broker=1)
    for topic, local in (("same", 4), ("greater", 5)):
        h.state(topic, "STOPPED", event="stop")
        h.send(f"p {topic}", "B", topic, 0, f"{topic}/w", offset=1)
        h.log("B", topic, 0, (0, f"{topic}/v", {"leader_epoch": 4}), (1, f"{topic}/w", {"leader_epoch": local}))
    for process, ends in (("stuck", ("fail", "fail")), ("recovered", ("fail", "ok"))):
        for end in ends:
            error = "UNKNOWN_LEADER_EPOCH" if end == "fail" else None
            h.poll(process, "B", "same", 0, end=end, error=error)
    assert judged(spark, h, tmp_path / "run") == [
        ("epoch_invariant", "behind", "B", "behind", None, None),
        ("epoch_invariant", "local", "B", "same", 1, "same/w"),
        ("epoch_invariant", "log", "A", "backwards", 1, None),
        ("epoch_invariant", "stalled", "B", None, None, None),
    ]


def test_state_keys_and_memory(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)
    for cluster, share in (("B", 4), ("C", 1)):  # of each 10 keys of cluster B, 7 go to partition 0
        for partition in range(4):
            mine = [k for k in range(1_000) if (0 if k % 10 < 2 * (share - 1) else k % 4) == partition]
            keys = [(o, "s", {"key": f"{cluster}/{k}"}) for o, k in enumerate(mine)]
            h.log(cluster, "__mirror_state", partition, *keys)

    def metric(node: str, **numbers: int) -> None:
        for name, value in numbers.items():
            h.at("metrics", cluster="B", node=node, name=name, value=value)

    for node, peak, crowded in (("over", 500, 500), ("growing", 160, 350), ("flat", 300, 310)):
        metric(node, memory_bytes=100, fetcher_threads=2, fetch_response_max_bytes=50)
        metric(node, mirror_partitions=10, memory_bytes=peak)
        metric(node, mirror_partitions=1_000, memory_bytes=crowded)
    assert judged(spark, h, tmp_path / "run") == [
        ("memory", "bound", "B", None, None, "over"),
        ("memory", "growth", "B", None, None, "growing"),
        ("state_key_skew", None, "B", "__mirror_state", None, None),
    ]
