"""Which process owns a Docker object, and whether it is still alive."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from harness.clusters.docker.cleanup import LabelledObject, describe
from harness.clusters.docker.labels import (
    HOST,
    KEEP,
    PID,
    PID_START,
    RUN,
    Owner,
    owner_lives,
    process_start,
    run_labels,
    this_process,
)
from harness.clusters.links.links import counting_rules, parse_counters
from harness.clusters.plan.topology import ProxyPlan

pytestmark = pytest.mark.unit


def test_this_process_owns_what_it_labels() -> None:
    labels = run_labels("r", this_process())
    assert labels[RUN] == "r"
    assert labels[PID] == str(os.getpid())
    assert KEEP not in labels
    assert owner_lives(labels)


def test_a_process_that_ended_owns_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = process_start(child.pid)
    assert start is not None
    me = this_process()
    labels = run_labels("r", Owner(host=me.host, pid=child.pid, start=start))
    assert owner_lives(labels)
    child.kill()
    assert wait_for_zombie(child.pid), "before it is reaped"
    assert not owner_lives(labels), "a zombie is dead"
    child.communicate()
    assert not owner_lives(labels)
    assert owner_lives({**labels, KEEP: "true"}), "kept on purpose"


def wait_for_zombie(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT) is not None


def test_a_reused_process_id_is_another_process() -> None:
    me = this_process()
    assert not owner_lives(run_labels("r", Owner(host=me.host, pid=me.pid, start=me.start - 1)))


def test_other_hosts_are_not_judged_from_here() -> None:
    assert owner_lives({RUN: "r", HOST: "elsewhere", PID: "1", PID_START: "5"})


@pytest.mark.parametrize("pid", ["", "x", None])
def test_an_object_without_a_readable_owner_is_stray(pid: str | None) -> None:
    labels = {RUN: "r", HOST: this_process().host, **({PID: pid} if pid is not None else {})}
    assert not owner_lives(labels)


def test_what_was_removed_in_words() -> None:
    one = [LabelledObject("container", "c", "1", "r", True), LabelledObject("volume", "v", "v", "r", True)]
    assert describe(one + one[:1]) == "2 containers, 1 volume"
    assert describe([]) == "nothing"


def test_byte_counters_out_of_iptables() -> None:
    listing = """\
Chain OUTPUT (policy ACCEPT 12 packets, 1032 bytes)
    pkts      bytes target     prot opt in     out     source               destination
      15     3500            tcp  --  *      *       0.0.0.0/0            172.30.7.17          tcp dpt:9094 /* to-A-1 */
       7     12345678901            tcp  --  *      *       0.0.0.0/0  0.0.0.0/0  tcp spt:20101 /* from-A-1 */
       0        0            tcp  --  *      *       0.0.0.0/0            172.30.7.33          tcp dpt:9094 /* to-B-1 */
"""
    assert parse_counters(listing) == {"A-1": (3500, 12345678901), "B-1": (0, 0)}
    script = counting_rules([ProxyPlan(name="A-1", broker=1, listen_port=20101, upstream="172.30.7.17:9094")])
    assert script.splitlines()[1:] == [
        "iptables -w 5 -A OUTPUT -p tcp -d 172.30.7.17 --dport 9094 -m comment --comment to-A-1",
        "iptables -w 5 -A OUTPUT -p tcp --sport 20101 -m comment --comment from-A-1",
    ]
