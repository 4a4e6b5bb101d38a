"""Odd histories: every line follows the format, and none makes sense alone.

Each piece has its own topic. `KINDS`: the kinds that the judge must find in it; the others must show none.
"""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]
FAR = 10**12


def send(topic: str, value: Any, type_: str = "ok", process: str = "p", **fields: Any) -> Event:
    place = {"cluster": "A", "topic": topic, "partition": 0, "value": value}
    return {"process": f"{topic}-{process}", "type": type_, "f": "send", **place, **fields}


def poll(topic: str, *read: list[Any], process: str = "c", **fields: Any) -> Event:
    place = {"cluster": "A", "topic": topic, "partition": 0, "value": list(read)}
    return {"process": f"{topic}-{process}", "type": "ok", "f": "poll", **place, **fields}


def dump(topic: str, *records: Event, **fields: Any) -> Event:
    place = {"cluster": "A", "topic": topic, "partition": 0, "value": list(records)}
    return {"process": "observer", "type": "ok", "f": "log_dump", "log_start": 0, **place, **fields}


PIECES: dict[str, list[Event]] = {
    "phantom": [send("phantom", "v", offset=0), poll("phantom", [0, "v"], [1, "nobody's"])],
    "stranger": [send("stranger", "v", process="never seen before", offset=0), poll("stranger", [0, "v"])],
    "twice-completed": [
        send("twice-completed", "v", "invoke"),
        send("twice-completed", "v", offset=0),
        send("twice-completed", "v", offset=0),
        poll("twice-completed", [0, "v"]),
    ],
    "contradicted": [send("contradicted", "v", "invoke"), send("contradicted", "v"), send("contradicted", "v", "fail")],
    "never-completed": [send("never-completed", "v", "invoke"), poll("never-completed", [0, "v"])],
    "far": [
        send("far", "v", offset=FAR),
        send("far", "w", offset=FAR + 2**40),
        poll("far", [FAR, "v"]),
        poll("far", [FAR + 2**40, "w"], process="d"),
    ],
    "furthest": [send("furthest", "v", offset=2**63 - 2), poll("furthest", [2**63 - 2, "v"])],
    "below-zero": [
        send("below-zero", "v", offset=-1),
        poll("below-zero", [-1, "v"], [-5, "u"]),
        send("below-zero", "u"),
    ],
    "empty": [dump("empty", leo=0), dump("empty", leo=0, log_start=None), poll("empty")],
    "odd-values": [
        *(send("odd-values", v, offset=i) for i, v in enumerate(("", "\u0000", "ü😀\n\t\"'", "x" * 100_000))),
        poll("odd-values", [0, ""], [1, "\u0000"], [2, "ü😀\n\t\"'"], [3, "x" * 100_000]),
    ],
    "no-value": [send("no-value", None, offset=0), poll("no-value", [0, None]), dump("no-value", {"offset": 0})],
    "numbers": [send("numbers", 17, offset=0), send("numbers", 1.5, offset=1), poll("numbers", [0, 17], [1, 1.5])],
    "nobody-wrote-it": [poll("nobody-wrote-it"), poll("nobody-wrote-it", process="d", position=7)],
    "made-again": [
        send("made-again", "old", offset=0),
        poll("made-again", [0, "old"]),
        *({"process": "admin", "type": "ok", "f": f, "topic": "made-again", "cluster": "A"} for f in ("delete_topic",)),
        *({"process": "admin", "type": "ok", "f": f, "topic": "made-again", "cluster": "A"} for f in ("create_topic",)),
        send("made-again", "new", offset=0),
        poll("made-again", [0, "new"], process="d"),
    ],
    "no-partition": [{**send("no-partition", "v", end=None), "partition": None}, poll("no-partition", [3, "v"])],
    "other-cluster": [
        {**send("other-cluster", "v", offset=0), "cluster": "C"},
        {**poll("other-cluster"), "cluster": None},
    ],
    "half-transaction": [
        {"process": "half-transaction", "type": "ok", "f": "txn_commit", "cluster": "A", "txn": "never begun"},
        send("half-transaction", "v", offset=0, txn="never ended"),
        poll("half-transaction", [0, "v"], isolation="no such level"),
    ],
    "same-twice-in-a-poll": [
        send("same-twice-in-a-poll", "v", offset=0),
        poll("same-twice-in-a-poll", [0, "v"], [0, "v"]),
    ],
    "unsorted-dump": [
        send("unsorted-dump", "v", offset=0),
        send("unsorted-dump", "w", offset=1),
        dump("unsorted-dump", {"offset": 1, "value": "w"}, {"offset": 0, "value": "v"}),
    ],
    "groups": [
        {
            "process": "g",
            "type": "ok",
            "f": f,
            "cluster": "A",
            "group": "",
            "topic": "groups",
            "partition": 0,
            "offset": o,
        }
        for f, o in (("commit_offset", -1), ("fetch_offset", -1), ("commit_offset", FAR), ("fetch_offset", FAR))
    ],
    "control": [
        dump(
            "control", {"offset": 0, "ctl": "SOMETHING_NEW", "pid": -1}, {"offset": 3, "ctl": "COMMIT", "pid": 9}, leo=9
        ),
    ],
    "states": [
        {"process": "mirror", "type": t, "f": "mirror_state", "cluster": "B", "topic": "states", "state": s}
        for s in ("mirroring", "NO_SUCH_STATE", "STOPPED")
        for t in ("invoke", "ok")
    ],
}
KINDS: dict[str, set[str]] = {
    "phantom": {"phantom"},
    "same-twice-in-a-poll": {"nonmonotonic_poll"},
    "below-zero": {"nonmonotonic_poll", "reordered"},
}


def history() -> list[Event]:
    """All pieces in one history, with gaps in its indices."""
    events = [event for piece in PIECES.values() for event in piece]
    return [{"index": 3 * number, "time": 10 * number, **event} for number, event in enumerate(events)]


EDN = (
    "{:type :invoke, :process 0, :f :send, :value [[:send 0 nil]]}\n"
    "{:type :ok, :process 0, :f :send, :value [[:send 0 [0 nil]]]} ; nil is a value, too\n"
    "#jepsen.history.Op{:index 7, :type :invoke, :process 3, :f :txn, :value [[:send 1 #{:a}] [:poll]]}\n"
    "{:type :info, :process 3, :f :txn, :value [[:send 1 [nil #{:a}]] [:poll {1 [[2 {:x 1}]]}]], :error [:oops]}\n"
    "{:type :ok, :process 4, :f :poll, :value [[:poll {}] [:poll] [:poll {0 [] 1 nil}]]}\n"
    "{:type :ok, :process 4, :f :poll, :value nil}\n"
    '{:type :ok, :process 5, :f :poll, :value [[:poll {0 [[1000000000000 ""] [1000000000001 "ü"]]}]]}\n'
    "{:type :ok, :process 6, :f :subscribe, :value []}{:type :info :process 7 :f :crash :value nil}\n"
    "{:type :info, :process :nemesis, :f :start, :value nil}\n"
    "{:type :info, :process :nemesis, :f :start, :value [:isolated {}]}\n"
    "{:type :ok, :process 8, :f :debug-topic-partitions, :value {0 {:replicas 3}}}\n"
)
"""The oddest operations that Jepsen's clients can write."""
