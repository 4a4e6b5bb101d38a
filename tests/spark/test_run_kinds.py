"""Kinds and forms that only a real run can show: planted faults and clean twins."""

from __future__ import annotations

from typing import Any

from conftest import Find
from literal import History

from checkers.clients import lost_write, stuck, thin
from checkers.logs import producers
from harness.history.runmeta import PhaseSpan

SECOND = 10**9
FLOOR = {"ok_sends": 2, "ok_polls": 1, "polled_records_on_destination": 1, "faults_bit": 1}


def healed(**meta: Any) -> History:
    """A real run whose faults were healed at the beginning."""
    h = History(source="shatter", **meta)
    spans = [PhaseSpan(name="heal", start_ns=0, end_ns=SECOND), PhaseSpan(name="settle", start_ns=SECOND)]
    h.meta = h.meta.model_copy(update={"phases": spans})
    return h


def kinds(rows: list[dict[str, Any]]) -> set[str]:
    return {f"{r['kind']}/{r['form']}" if r["form"] else r["kind"] for r in rows}


def test_a_run_under_its_floor(find: Find) -> None:
    h = History(source="shatter", floor=FLOOR)
    h.send("p", "A", "t", 0, "v", offset=0)
    h.poll("c", "A", "t", 0)  # returned nothing
    h.send("p", "A", "t", 0, "final", offset=1, phase="final")  # the final phase does not count as load
    fault = {"fault_id": 1, "name": "kill", "cluster": "A"}
    h.row("faults", action="inject", **fault)
    h.row("faults", action="bit", ok=False, **fault)
    rows = find(thin.CHECKER, h)
    assert kinds(rows) == {"thin/ok_sends", "thin/ok_polls", "thin/polled_records_on_destination", "thin/faults_bit"}
    assert "only 1 sends succeeded, the floor is 2" in {r["explain"] for r in rows}


def test_a_run_over_its_floor(find: Find) -> None:
    h = History(source="shatter", floor=FLOOR)
    h.send("p", "A", "t", 0, "v", offset=0)
    h.send("p", "A", "t", 0, "w", offset=1)
    h.poll("c", "A", "t", 0, (0, "v"))
    h.poll("d", "B", "t", 0, (0, "v"))
    h.row("faults", fault_id=1, name="kill", cluster="A", action="bit", ok=True)
    assert find(thin.CHECKER, h) == []


def test_stuck_after_healing(find: Find) -> None:
    """One stuck and one not stuck of each form."""
    h = healed()

    def operation(process: str, begin: int, end: int | None) -> None:
        invoke = h.event(process, "invoke", "send", cluster="A", time_ns=begin * SECOND)
        if end is not None:
            h.event(process, "info", "send", cluster="A", invoke_index=invoke, time_ns=end * SECOND)

    operation("stuck client", 10, 90)
    operation("never answered", 20, None)
    operation("slow client", 10, 40)
    operation("hung before the healing", 0, 30)
    operation("last", 100, 101)
    for second in (10, 50, 95):
        at = {"time_ns": second * SECOND, "partition": 0}
        for topic, stable in (("stuck", 3), ("steady", second)):
            h.row("log_ends", cluster="A", topic=topic, broker=1, last_stable=stable, high_watermark=99, **at)
        for group, offset, members in (("stuck", 2, 1), ("steady", second, 1), ("left", 2, 0), ("at the end", 99, 1)):
            place = {"cluster": "A", "topic": "steady", "group": group, "event": "look"}
            h.row("group_offsets", offset=offset, members=members, **place, **at)
        for topic, there, lag in (("stuck", 7, 5), ("steady", second, 5), ("at rest", 7, 0)):
            place = {"mirror": "m", "cluster": "B", "topic": topic, "state": "MIRRORING"}
            h.row("mirror_states", destination_offset=there, lag=lag, **place, **at)
    rows = find(stuck.CHECKER, h)
    assert kinds(rows) == {"stuck/client", "stuck/last_stable", "stuck/group", "stuck/mirror"}
    told = sorted(r["explain"].partition(" after healing")[0] for r in rows)
    assert told == [
        "group stuck stayed at 2 of steady-0 on A for 85.0 s",
        "never answered waited 81.0 s for send on A",
        "stuck client waited 80.0 s for send on A",
        "the last stable offset of stuck-0 on A stayed at 3 for 85.0 s",
        "the mirror left stuck-0 on B at offset 7 for 85.0 s",
    ]


def test_a_final_read_that_does_not_return_it(find: Find) -> None:
    h = History(source="shatter")
    for topic in ("lost", "kept"):
        h.send(f"p {topic}", "A", topic, 0, f"{topic}/a", f"{topic}/b", offset=0)
        h.poll(f"c {topic}", "A", topic, 0, (0, f"{topic}/a"), (1, f"{topic}/b"))
        read = [(0, f"{topic}/a"), (1, f"{topic}/b")][: 1 if topic == "lost" else 2]
        h.poll(f"f {topic}", "A", topic, 0, *read, phase="final")
        h.final_read("A", topic, 0, 2)
    rows = find(lost_write.CHECKER, h)
    assert kinds(rows) == {"lost_write/unreadable"}
    assert [r["value"] for r in rows] == ["lost/b"]


def test_two_producers_under_one_id_and_two_processes_of_one(find: Find) -> None:
    """Processes may share a producer: only two producers under one id and epoch collide."""
    h = History()
    for topic, clients in (("two", ("one", "other")), ("shared", ("same", "same"))):
        log = []
        for number, client in enumerate(clients):
            value = f"{topic}/{number}"
            h.send(f"{topic} process {number}", "A", topic, 0, value, offset=number, client=f"{topic} {client}")
            log.append((number, value, {"producer_id": 5, "producer_epoch": 0, "sequence": number}))
        h.log("A", topic, 0, *log)
    assert [(r["kind"], r["topic"]) for r in find(producers.CHECKER, h)] == [("pid_collision", "two")]
