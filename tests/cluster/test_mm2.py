"""MirrorMaker 2 on real clusters: it mirrors through the links only, comes back after kills, and reports correctly."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from harness.clusters.docker.images import ImageSet
from harness.clusters.pair import RunningTopology
from harness.core.errors import WaitTimeoutError
from harness.core.wait import wait_until
from harness.evidence.group_snapshots import snapshot_groups
from harness.evidence.snapshots import snapshot_mirror
from harness.history.recorder import RunRecorder
from harness.topology.clusters import Cluster, Node, NodeState
from harness.topology.mirror import Mirror, PartitionState

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves a test's neighbours out of sight
from mirroring import mm2, transaction, values, write

CARRY_S = 60.0
CAUGHT_UP_S = 60.0


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[RunRecorder]:
    with RunRecorder(tmp_path / "recorded") as made:
        yield made


@pytest.fixture
def topics(pair: RunningTopology, topic: str) -> list[str]:
    """Two topics on A, four partitions each, one with a dot in its name."""
    names = [topic, f"{topic}.dotted"]
    for name in names:
        pair.clusters["A"].create_topic(name, partitions=4, replication=3)
    return names


def rows(recorder: RunRecorder, table: str) -> list[dict[str, object]]:
    recorder.flush()
    if not (recorder.run_dir / table).exists():
        return []
    return list(ds.dataset(recorder.run_dir / table).to_table().to_pylist())


def assert_caught_up(mirror: Mirror, topics: list[str], *, partitions: int = 4) -> None:
    lags = mirror.await_caught_up(topics, timeout_s=CAUGHT_UP_S)
    assert lags == {(t, p): 0 for t in topics for p in range(partitions)}


def tcp_bytes(node: Node, *, towards: str) -> int:
    """Bytes of the counting rule that `count_from_now` made for this destination (`elsewhere`: every other one)."""
    listing = node.net("iptables -w 5 -L -n -v -x").output
    found = re.search(rf"^\s*\d+\s+(\d+)\s.*/\* {towards} \*/", listing, re.MULTILINE)
    assert found, listing
    return int(found[1])


def count_from_now(node: Node, *, proxy: str) -> None:
    script = f"""set -e
    iptables -w 5 -A OUTPUT -p tcp -d {proxy} -m comment --comment to-proxy
    iptables -w 5 -A INPUT -p tcp -s {proxy} -m comment --comment from-proxy
    iptables -w 5 -N elsewhere
    iptables -w 5 -A elsewhere -p tcp -m comment --comment elsewhere
    iptables -w 5 -A OUTPUT -p tcp ! -d {proxy} ! -o lo -j elsewhere"""
    assert node.net(script).exit_code == 0


def test_exactly_once_mirrors_everything_through_the_links_and_drops_aborted_data(
    pair: RunningTopology, images: ImageSet, topics: list[str], recorder: RunRecorder
) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    proxy = pair.plan.toxiproxy.address
    began = time.monotonic()
    with mm2(pair, images, topics) as mirror:
        (node,) = mirror.nodes()
        count_from_now(node, proxy=proxy)
        took = mirror.await_mirroring(topics, recorder=recorder, timeout_s=CARRY_S)
        print(f"\nfirst probes mirrored {time.monotonic() - began:.1f} s after the start")
        assert set(took) == {(t, p) for t in topics for p in range(4)}

        # Bytes: what the mirror exchanges with toxiproxy is what toxiproxy exchanges with the brokers.
        before = traffic(pair, node)
        for number, name in enumerate(topics):
            write(a.bootstrap, name, [f"{name}-{i}-{'x' * 1000}" for i in range(2000)], partition=number)
        assert_caught_up(mirror, topics)
        mirror_out, mirror_in, link_out, link_in = (
            now - then for now, then in zip(traffic(pair, node), before, strict=True)
        )
        print(f"mirror → proxy {mirror_out}, proxy → mirror {mirror_in}; links: to {link_out}, from {link_in} bytes")
        assert min(mirror_out, mirror_in) > 4_000_000
        assert link_out == pytest.approx(mirror_out, rel=0.05)
        assert link_in == pytest.approx(mirror_in, rel=0.05)
        assert tcp_bytes(node, towards="elsewhere") == 0
        peers = set(re.findall(r"(\S+):\d+\s*$", node.net("ss -Htn state established").output, re.MULTILINE))
        assert proxy in peers
        assert peers <= {proxy, node.address}

        # Transactions, ending with an aborted one: A's log then does not end with a record that can be mirrored.
        transaction(a.bootstrap, topics[0], ["c1", "c2"], commit=True, partition=2)
        transaction(a.bootstrap, topics[0], ["a1", "a2"], commit=False, partition=2)
        assert_caught_up(mirror, topics)
        assert values(a.bootstrap, topics[0], partition=2, isolation="read_uncommitted") == ["c1", "c2", "a1", "a2"]
        assert values(b.bootstrap, topics[0], partition=2, isolation="read_uncommitted") == ["c1", "c2"]

        for _ in range(2):  # the second snapshot of an idle partition is exact
            assert snapshot_mirror(mirror, recorder) == []
        states = rows(recorder, "mirror_states")
        assert {(row["topic"], row["partition"]) for row in states} == {(t, p) for t in topics for p in range(4)}
        assert [row["lag"] for row in states[8:]] == [0] * 8
        assert {row["state"] for row in states} == {"MIRRORING"}

        cut = mirror.stop(topics).offsets
        source_ends = {(t, p): len(values(a.bootstrap, t, partition=p)) + 1 for t in topics for p in range(4)}
        assert {p: s for p, (s, _) in cut.items() if p != (topics[0], 2)} == {
            p: end for p, end in source_ends.items() if p != (topics[0], 2)
        }
        assert cut[topics[0], 2][0] == 3  # probe, c1, c2; the marker and the aborted records do not count
        assert {s.state for s in mirror.describe()} == {PartitionState.STOPPED}
        assert {n.state() for n in mirror.nodes()} == {NodeState.STOPPED}

    ops, sent = rows(recorder, "ops"), rows(recorder, "op_records")
    assert [op["type"] for op in ops].count("ok") >= 8
    assert all(str(record["value"]).startswith("probe:") for record in sent)


def traffic(pair: RunningTopology, node: Node) -> tuple[int, int, int, int]:
    """(mirror to proxy, proxy to mirror, links towards the clusters, links from the clusters), bytes so far."""
    links = [count for link in pair.links.values() for count in link.bytes().values()]
    return (
        tcp_bytes(node, towards="to-proxy"),
        tcp_bytes(node, towards="from-proxy"),
        sum(to for to, _ in links),
        sum(back for _, back in links),
    )


def test_a_killed_mirror_comes_back_by_itself_and_repeats_nothing(
    pair: RunningTopology, images: ImageSet, topics: list[str], recorder: RunRecorder
) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    with mm2(pair, images, topics) as mirror:
        (node,) = mirror.nodes()
        mirror.await_mirroring(topics, recorder=recorder, timeout_s=CARRY_S)
        write(a.bootstrap, topics[0], [f"v{i}" for i in range(3000)])
        node.kill()
        write(a.bootstrap, topics[0], [f"w{i}" for i in range(500)])
        statuses = mirror.describe()
        assert {s.state for s in statuses} == {PartitionState.UNKNOWN}
        assert "mirror-1 is stopped" in str(statuses[0].error)
        missing = mirror.await_caught_up(topics, timeout_s=1)
        assert sum(n or 0 for n in missing.values()) >= 500
        with pytest.raises(WaitTimeoutError, match=r"mirrored none: .*no mirror process runs"):
            mirror.await_mirroring(topics, recorder=recorder, timeout_s=2)

        node.start()
        began = time.monotonic()
        mirror.await_mirroring(topics, recorder=recorder, timeout_s=CARRY_S)
        print(f"\nmirrors again {time.monotonic() - began:.1f} s after its start")
        assert_caught_up(mirror, topics)
        assert values(b.bootstrap, topics[0]) == [f"v{i}" for i in range(3000)] + [f"w{i}" for i in range(500)]
        assert {s.state for s in mirror.describe()} == {PartitionState.MIRRORING}


def test_a_failed_task_is_reported_and_restarted(
    pair: RunningTopology, images: ImageSet, topics: list[str], recorder: RunRecorder
) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    with mm2(pair, images, topics) as mirror:
        mirror.await_mirroring(topics, recorder=recorder, timeout_s=CARRY_S)
        assert mirror.revive() == []
        for task in (0, 1):  # another producer with a task's transactional id fences that task for good
            usurper = Producer(
                {"bootstrap.servers": b.bootstrap, "transactional.id": f"A-mm2-MirrorSourceConnector-{task}"}
            )
            usurper.init_transactions(30)
        for partition in range(4):
            write(a.bootstrap, topics[0], ["after"], partition=partition)
        wait_until(
            lambda: {s.state for s in mirror.describe()} == {PartitionState.FAILED},
            timeout_s=30,
            what="both tasks to be FAILED",
            instead=lambda: str(mirror.describe()),
            interval_s=1.0,
        )
        assert re.search("InvalidProducerEpoch|ProducerFenced", str(mirror.describe()[0].error))
        assert sum(n or 0 for n in mirror.await_caught_up(topics, timeout_s=1).values()) == 4

        told = mirror.revive()
        assert told
        assert all("had given up on" in sentence for sentence in told)
        assert_caught_up(mirror, topics)
        assert [values(b.bootstrap, topics[0], partition=p) for p in range(4)] == [["after"]] * 4


def test_default_names_at_least_once_and_a_topic_added_and_removed_later(
    pair: RunningTopology, images: ImageSet, topics: list[str], recorder: RunRecorder
) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    first, second = topics
    options = {"identity_names": "false"}
    with mm2(pair, images, [first], contract="mm2-at-least-once", options=options) as mirror:
        mirror.await_mirroring([first], recorder=recorder, timeout_s=CARRY_S)
        transaction(a.bootstrap, first, ["a1", "a2"], commit=False)
        assert_caught_up(mirror, [first])
        # A read_uncommitted source consumer copies aborted records as plain ones.
        assert values(b.bootstrap, f"A.{first}") == ["a1", "a2"]
        assert f"A.{second}" not in b.topics()

        mirror.start([second])
        mirror.await_mirroring(topics, recorder=recorder, timeout_s=CARRY_S)
        cut = mirror.stop([first])
        assert set(cut.offsets) == {(first, p) for p in range(4)}
        mirror.await_mirroring([second], recorder=recorder, timeout_s=CARRY_S)
        write(a.bootstrap, first, ["late"])
        write(a.bootstrap, second, ["goes on"])
        assert_caught_up(mirror, [second])
        assert values(b.bootstrap, f"A.{second}") == ["goes on"]
        assert "late" not in values(b.bootstrap, f"A.{first}")
        by_state = {(s.topic, s.state) for s in mirror.describe()}
        assert by_state == {(first, PartitionState.STOPPED), (second, PartitionState.MIRRORING)}


def test_another_process_takes_over_and_group_offsets_are_synced(
    pair: RunningTopology, images: ImageSet, topics: list[str], recorder: RunRecorder
) -> None:
    a, b = pair.clusters["A"], pair.clusters["B"]
    group = f"group-{topics[0]}"
    with mm2(pair, images, topics, mirror_nodes=2, options={"group_offsets": "true"}) as mirror:
        mirror.await_mirroring(topics, recorder=recorder, timeout_s=CARRY_S)
        write(a.bootstrap, topics[0], [f"v{i}" for i in range(10)])
        commit(a.bootstrap, group, topics[0], 11)  # probe and ten records: the group is at the end
        # On B the offset differs (the mirror's own transaction markers), but it is the log end too.
        wait_until(
            lambda: resumes_at(b, recorder, group, topics[0]) == [],
            timeout_s=45,
            what=f"{group} to have nothing left to read on B",
            instead=lambda: f"it would read {resumes_at(b, recorder, group, topics[0])}",
            interval_s=1.0,
        )
        first, second = mirror.nodes()
        first.kill()
        began = time.monotonic()
        mirror.await_mirroring(topics, recorder=recorder, timeout_s=CARRY_S)
        print(f"\n{second.name} mirrors alone {time.monotonic() - began:.1f} s after the other was killed")
        assert first.state() is NodeState.STOPPED


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def resumes_at(cluster: Cluster, recorder: RunRecorder, group: str, topic: str) -> list[str] | None:
    """The records that this group would read next on this cluster; None while it has no offset there."""
    assert snapshot_groups(cluster, recorder, groups=[group]) == []
    found = [row for row in rows(recorder, "group_offsets") if (row["group"], row["topic"]) == (group, topic)]
    if not found:
        return None
    assert (found[-1]["partition"], found[-1]["kind"], found[-1]["members"]) == (0, "consumer", 0)
    return values(cluster.bootstrap, topic, start=int(str(found[-1]["offset"])))
