"""Helpers that write histories in JSON lines (docs/history-format.md): each call writes the lines of one event.

Every story is written twice: with its fault, and without (its clean twin). Names of topics, groups, transactions,
values and processes are prefixed with the story's name, so that many stories fit into one file and one judgement; a
mirror step that concerns "everything" then becomes one line per topic of the story, as the importer reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from checkers.judge.judge import judge
from harness.history.jsonl.importer import import_jsonl

Event = dict[str, Any]
Record = tuple[int, str | None] | tuple[int, str | None, dict[str, Any]]
Tell = Callable[["Lines", bool], None]
STEP_MS = 10
_STEPS = ("failover", "stop_mm2", "start_mm2", "kill_mm2", "mirror_stop", "mirror_start", "mirror_failback")


class Lines:
    """The lines of one story. Sends and steps are invoked and completed; a snapshot is one line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: list[Event] = []
        self.now = 0
        self._topics: dict[str, None] = {}

    def named(self, text: str) -> str:
        """A name of this story."""
        return f"{self.name}.{text}"

    def line(self, process: str, type_: str, f: str, **fields: Any) -> None:
        """One line, STEP_MS after the last."""
        self.now += STEP_MS
        who = process if process.startswith(("nemesis", "mirror", "mm2", "admin", "observer")) else self.named(process)
        self.events.append({"process": who, "type": type_, "f": f, "time": self.now, **fields})

    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.now += ms

    def topic(self, name: str) -> str:
        """The topic's name in the file; `B.A.t` is `B.A.` and the name of t."""
        self._topics[name] = None
        return self._topic(name)

    def _topic(self, name: str) -> str:
        before, dot, own = name.rpartition(".")
        return before + dot + self.named(own)

    def both(self, process: str, f: str, end: str = "ok", done: Event | None = None, **fields: Any) -> None:
        """An invocation and its completion, which has the fields `done` in addition."""
        self.line(process, "invoke", f, **fields)
        self.line(process, end, f, **fields, **(done or {}))

    def send(
        self,
        cluster: str,
        *values: str,
        at: int | None = None,
        p: int = 0,
        topic: str = "t",
        by: str = "p1",
        end: str = "ok",
        txn: str | None = None,
        **fields: Any,
    ) -> None:
        """Values sent one by one; acknowledged at consecutive offsets from `at`."""
        for number, value in enumerate(values):
            place = {"cluster": cluster, "topic": self.topic(topic), "partition": p, "value": self.named(value)}
            if txn is not None:
                place["txn"] = self.named(txn)
            done = {} if end == "fail" else {"offset": None if at is None else at + number}
            self.both(by, "send", end, done, **place, **fields)

    def txn(self, cluster: str, step: str, txn: str, end: str = "ok", by: str = "p1", **fields: Any) -> None:
        """begin, commit or abort."""
        self.both(by, f"txn_{step}", end, cluster=cluster, txn=self.named(txn), **fields)

    def dump(self, cluster: str, *records: Record, p: int = 0, topic: str = "t", **fields: Any) -> None:
        """A snapshot of a log: (offset, value) or (offset, None or value, further fields)."""
        shown = []
        for offset, value, *more in records:
            extra = dict(more[0]) if more else {}
            if "txn" in extra:
                extra["txn"] = self.named(extra["txn"])
            shown.append({"offset": offset, **({} if value is None else {"value": self.named(value)}), **extra})
        end = fields.pop("leo", max((r[0] + 1 for r in records), default=0))
        ends = {"log_start": 0, "leo": end, "hw": end, "lso": end, "replica": None, **fields}
        place = {"cluster": cluster, "topic": self.topic(topic), "partition": p}
        self.line("observer", "ok", "log_dump", **place, **ends, value=shown)

    def poll(
        self, cluster: str, *read: tuple[int, str], p: int = 0, topic: str = "t", by: str = "c1", **fields: Any
    ) -> None:
        """A poll that returns (offset, value) pairs; `group` is prefixed with the story's name."""
        if "group" in fields:
            fields["group"] = self.named(fields["group"])
        fields = {"isolation": "read_uncommitted", **fields}
        place = {"cluster": cluster, "topic": self.topic(topic), "partition": p}
        self.line(by, "ok", "poll", **place, value=[[o, self.named(v)] for o, v in read], **fields)

    def offsets(
        self,
        f: str,
        cluster: str,
        offset: int | None,
        group: str = "g",
        p: int = 0,
        topic: str = "t",
        **fields: Any,
    ) -> None:
        """commit_offset, fetch_offset, sync_group_offset or checkpoint."""
        by = fields.pop("by", "mirror" if f in ("sync_group_offset", "checkpoint") else "c1")
        place = {"cluster": cluster, "group": self.named(group), "topic": self.topic(topic), "partition": p}
        self.line(by, fields.pop("end", "ok"), f, **place, offset=offset, **fields)

    def mirror(self, f: str, process: str = "admin", **fields: Any) -> None:
        """A step or a recorded state of the mirror to B; without `topic`, of every topic of the story."""
        self.events.append({"mirror step": (process, f, fields, self.now + STEP_MS)})
        self.now += STEP_MS

    def told(self) -> list[Event]:
        """The lines, including those of mirror steps."""
        found: list[Event] = []
        for event in self.events:
            step = event.get("mirror step")
            if step is None:
                found.append(event)
                continue
            process, f, fields, time = step
            types = ("info",) if process.startswith("nemesis") else ("invoke", "ok")
            where = fields if process.startswith("nemesis") else {"cluster": "B", **fields}
            for topic in [self._topic(fields["topic"])] if "topic" in fields else map(self._topic, self._topics):
                found += [{"process": process, "type": t, "f": f, "time": time, **where, "topic": topic} for t in types]
        return found


def write(path: Path, stories: list[Lines]) -> Path:
    """One file of all their lines, story after story."""
    lines: list[Event] = []
    begin = 0
    for story in stories:
        lines += [{**event, "time": begin + event["time"]} for event in story.told()]
        begin += story.now + STEP_MS
    numbered = ({"index": index, **event} for index, event in enumerate(lines))
    path.write_text("".join(json.dumps(e, ensure_ascii=False) + "\n" for e in numbered), encoding="utf-8")
    return path


class Pack:
    """Stories under one contract, judged together."""

    def __init__(self, contract: str) -> None:
        self.contract = contract
        self.stories: dict[str, tuple[Tell, frozenset[str]]] = {}

    def story(self, *kinds: str) -> Callable[[Tell], Tell]:
        """Add a story and the kinds (KIND/FORM where a kind has forms) that its fault must show: exactly these."""

        def add(tell: Tell) -> Tell:
            self.stories[tell.__name__] = (tell, frozenset(kinds))
            return tell

        return add

    def told(self) -> dict[str, Lines]:
        """name/fault and name/clean → their lines. Stories of `stuck` come last: it is judged only after the last
        fault."""
        found = {}
        ordered = sorted(self.stories.items(), key=lambda s: any(k.startswith("stuck") for k in s[1][1]))
        for name, (tell, _) in ordered:
            for twin in ("fault", "clean"):
                lines = found[f"{name}/{twin}"] = Lines(f"{name}-{twin}")
                tell(lines, twin == "fault")
        return found

    def expected(self, story: str) -> frozenset[str]:
        """Kinds that a written story must show."""
        name, _, twin = story.partition("/")
        return self.stories[name][1] if twin == "fault" else frozenset()

    def judged(
        self, spark: SparkSession, folder: Path, through: Callable[[Path], Path] = lambda run: run
    ) -> dict[str, dict[str, list[str]]]:
        """story → kind or kind/form → sentences; an anomaly of no story is under its own topic. through: turns the
        imported run into the one that is judged."""
        told = self.told()
        run = through(import_jsonl(write(folder / "pack.jsonl", list(told.values())), folder / "run"))
        judgement = judge(run, self.contract, spark)
        assert not [why for why in judgement.unjudged.values() if "Error" in why or "Invalid" in why], (
            judgement.unjudged
        )
        found: dict[str, dict[str, list[str]]] = {name: {} for name in told}
        if (run / "results" / "anomalies").exists():
            for row in spark.read.parquet(str(run / "results" / "anomalies")).collect():
                name = next((s for s, lines in told.items() if lines.name + "." in str(row)), str(row.topic))
                kind = f"{row.kind}/{row.form}" if row.form else row.kind
                found.setdefault(name, {}).setdefault(kind, []).append(row.explain)
        return found
