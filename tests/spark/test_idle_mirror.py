"""A fault under which the mirror copied nothing makes the verdict unknown; each case has a clean twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conftest import Find
from literal import History

from checkers.clients import thin
from harness.history.runmeta import PhaseSpan

SECOND = 10**9
LOAD_S = 75
BEGINS = (5, 15, 25, 35, 45, 55, 65)
HOLD_S = 3
RATE = 20  # records a second and partition
EVEN: dict[str, Any] = {"carried_under_fault": 10, "partitions_under_faults": 2}


def run(
    carried: Callable[[float], float] | None,
    *,
    begins: tuple[int, ...] = BEGINS,
    clusters: str = "ABABABA",
    floor: dict[str, Any] = EVEN,
    partitions: int = 2,
    **meta: Any,
) -> History:
    """A run with a fault at each second of `begins`. carried: second → high watermark of each partition on B, sampled
    every two seconds as by every driver; None: no snapshots."""
    test = {"mirror": "mm2", **meta.pop("test", {})}
    drawn = [
        {"fault_id": n, "nemesis": "broker-pause", "cluster": cluster, "role": "any", "params": {}}
        for n, (_, cluster) in enumerate(zip(begins, clusters, strict=False))
    ]
    h = History(
        source="shatter",
        test=test,
        schedule=drawn,
        floor=floor,
        clusters={"A": {}, "B": {}},
        topic_map={"t": "t"},
        **meta,
    )
    phases = [
        PhaseSpan(name="load", start_ns=0, end_ns=LOAD_S * SECOND),
        PhaseSpan(name="settle", start_ns=LOAD_S * SECOND),
    ]
    h.meta = h.meta.model_copy(update={"phases": phases})
    for n, begin in enumerate(begins):
        fault = {"fault_id": n, "name": "broker-pause", "cluster": clusters[n]}
        for action, second in (("inject", begin), ("bit", begin + 0.5), ("heal", begin + HOLD_S)):
            h.row("faults", action=action, ok=True, time_ns=int(second * SECOND), **fault)
    h.send("p", "A", "t", 0, "v", offset=0)
    for look, second in enumerate(range(0, LOAD_S + 15, 2)) if carried else ():
        for partition in range(partitions):
            place = {"cluster": "B", "topic": "t", "partition": partition, "broker": 1, "leader": 1, "look": look}
            end = int((carried or float)(second))
            h.row("log_ends", time_ns=second * SECOND, log_start=0, log_end=end, high_watermark=end, **place)
    return h


def kinds(rows: list[dict[str, Any]]) -> set[str]:
    return {f"{row['kind']}/{row['form']}" for row in rows}


def told(rows: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(row["form"], row["explain"]) for row in rows}


def idle(records: int, *faults: tuple[int, str], floor: int = 10) -> set[tuple[str, str]]:
    only = f"the mirror copied only {records} records while fault"
    end = f"was active and 20 s after it, the floor is {floor}"
    return {("idle_mirror", f"{only} {n} (broker-pause on {cluster}) {end}") for n, cluster in faults}


def test_a_mirror_that_stood_still_for_65_of_75_seconds(find: Find) -> None:
    """The mirror caught up after everything; for the last faults that is soon enough."""
    found = find(thin.CHECKER, run(lambda s: RATE * min(s, 10) if s < LOAD_S + 1 else RATE * LOAD_S))
    assert kinds(found) == {"thin/idle_mirror"}
    assert told(found) == idle(0, (1, "B"), (2, "A"), (3, "B"), (4, "A"))


def test_a_mirror_that_pauses_at_every_fault_is_not_idle(find: Find) -> None:
    """Nothing is copied during a fault, and everything 20 seconds after the first of two."""
    assert find(thin.CHECKER, run(lambda s: RATE * 20 * int(s / 20))) == []


def test_without_a_recorded_floor_it_is_one_record(find: Find) -> None:
    still = find(thin.CHECKER, run(lambda s: 7, floor={}, begins=(5,), clusters="A"))
    assert told(still) == idle(0, (0, "A"), floor=1)
    assert find(thin.CHECKER, run(lambda s: 7 + (s > 20), floor={}, begins=(5,), clusters="A")) == []


def test_partitions_under_faults(find: Find) -> None:
    alone = find(thin.CHECKER, run(lambda s: RATE * s, partitions=1))
    assert told(alone) == {
        ("idle_partitions", "the mirror copied records of only 1 partitions under faults, the floor is 2")
    }
    assert kinds(alone) == {"thin/idle_partitions"}
    twin = find(thin.CHECKER, run(lambda s: RATE * s, partitions=2))
    assert not twin, "two partitions"


def test_markers_and_local_writes_do_not_count_as_mirrored_records(find: Find) -> None:
    def with_markers(every: int) -> History:
        h = run(lambda s: s, begins=(10,), clusters="A", partitions=1, floor={"carried_under_fault": 10})
        marks = [(n, None, {"control_type": "COMMIT"}) if n % every else (n, f"v{n}") for n in range(90)]
        h.log("B", "t", 0, *marks, broker=1, leader=1, look=99)
        for row in h.tables["log_ends"][-1:]:
            row["time_ns"] = 200 * SECOND
        return h

    assert {form for form, _ in told(find(thin.CHECKER, with_markers(30)))} == {"idle_mirror"}
    assert find(thin.CHECKER, with_markers(2)) == []

    def with_a_writer(at: int) -> History:
        h = run(lambda s: RATE * max(0, s - 20), begins=(15,), clusters="A", partitions=1)
        h.meta = h.meta.model_copy(update={"floor": {"carried_under_fault": 10}})
        h.row(
            "ops", index=999, process="q", type="invoke", f="send", cluster="B", time_ns=at * SECOND, phase="scenario"
        )
        return h

    assert {form for form, _ in told(find(thin.CHECKER, with_a_writer(20)))} == {"idle_mirror"}
    assert find(thin.CHECKER, with_a_writer(60)) == []


def test_a_stop_that_ends_the_window_of_the_last_fault(find: Find) -> None:
    """What the mirror copied right before the fault then decides whether it was idle."""

    def stopped(carried: Callable[[float], float]) -> History:
        h = run(carried, begins=(68,), clusters="B", partitions=1, floor={"carried_under_fault": 10})
        place = {"mirror": "A-B", "cluster": "B", "topic": "t", "partition": 0}
        h.row("mirror_states", state="STOPPED", time_ns=76 * SECOND, **place)
        return h

    assert find(thin.CHECKER, stopped(lambda s: RATE * min(s, 66))) == []
    assert told(find(thin.CHECKER, stopped(lambda s: RATE * min(s, 30)))) == idle(0, (0, "B"))


def test_without_snapshots_reads_on_the_destination_count(find: Find) -> None:
    def read_at(*seconds: int) -> History:
        h = run(None, begins=(40,), clusters="A", floor={"carried_under_fault": 2})
        for n, second in enumerate(seconds):
            at = {"cluster": "B", "phase": "load", "time_ns": second * SECOND}
            invoke = h.event("c", "invoke", "poll", **at)
            record = {"action": "poll", "topic": "t", "partition": 0, "offset": n, "value": f"v{n}"}
            h.event("c", "ok", "poll", [record], invoke_index=invoke, **at)
        return h

    assert {form for form, _ in told(find(thin.CHECKER, read_at(10, 20, 60)))} == {"idle_mirror"}
    assert find(thin.CHECKER, read_at(10, 41, 60)) == []


def test_each_nemesis_that_was_asked_for_must_have_bitten(find: Find) -> None:
    def asked(*nemeses: str, clusters: str) -> set[tuple[str, str]]:
        begins = BEGINS[: len(clusters)]
        return told(
            find(thin.CHECKER, run(lambda s: RATE * s, begins=begins, clusters=clusters, test={"nemeses": nemeses}))
        )

    def missed(name: str) -> tuple[str, str]:
        return ("nemesis", f"no fault of nemesis {name} was seen to bite")

    two = ("broker-pause:A", "broker-pause:B")
    assert asked(*two, clusters="AA") == {missed("broker-pause:B")}
    assert asked(*two, clusters="AB") == set()
    assert asked("broker-pause:B/leader", clusters="AB") == {missed("broker-pause:B/leader")}
    assert asked("broker-pause:B/any", clusters="AB") == set()
    assert asked("broker-pause", "broker-kill", clusters="AB") == {missed("broker-kill")}


def test_a_fault_of_a_moment_must_have_bitten_there(find: Find) -> None:
    """One of the load does not stand for it, nor it for one of the load."""

    def missed(*nemeses: str, at_step: str) -> set[str]:
        h = run(lambda s: RATE * s, begins=(40,), clusters="A", test={"nemeses": nemeses})
        schedule = [{**fault, "at_step": at_step} if at_step else fault for fault in h.meta.schedule]
        h.meta = h.meta.model_copy(update={"schedule": schedule})
        return {
            sentence.split(" was seen")[0].removeprefix("no fault of nemesis ")
            for _, sentence in told(find(thin.CHECKER, h))
        }

    assert missed("broker-pause:A@stop", at_step="stop.A-B") == set()
    assert missed("broker-pause:A@stop.A-B..write", at_step="stop.A-B") == set()
    assert missed("broker-pause:A@write", at_step="stop.A-B") == {"broker-pause:A@write"}
    assert missed("broker-pause:A", at_step="stop.A-B") == {"broker-pause:A"}
    assert missed(at_step="stop.A-B") == set()  # a disaster that the seed chose
    assert missed("broker-pause:A@stop", at_step="") == {"broker-pause:A@stop"}


def test_reads_after_the_load_do_not_count_as_under_load(find: Find) -> None:
    floor = {"polled_records_on_destination": 1}

    def read(phase: str) -> History:
        h = History(source="shatter", floor=floor)
        h.poll("c", "B", "t", 0, (0, "v"), phase=phase)
        return h

    low = {("polled_records_on_destination", "only 0 records were read on the destination under load, the floor is 1")}
    assert told(find(thin.CHECKER, read("final"))) == low
    assert told(find(thin.CHECKER, read("scenario"))) == low
    assert find(thin.CHECKER, read("load")) == []
