"""The admin API over real HTTP: refusals by state, events, rows and metrics."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from harness.core.errors import MirrorError
from harness.wire.frames import WireError
from mirrors.reference.driver.admin_client import AdminClient, RefusedError, UnreachableError
from mirrors.reference.server.admin_api import AdminApi
from mirrors.reference.server.audit import AuditLog, EventKind
from mirrors.reference.server.describing import MirrorRow, Position, row
from mirrors.reference.server.metrics import memory, render
from mirrors.reference.server.model import MirrorConfig, PartitionKey, PartitionRecord
from mirrors.reference.server.operations import STARTABLE, STOPPABLE, UnknownMirrorError, refuse_unless
from mirrors.reference.server.states import PartitionState as S
from mirrors.reference.server.states import allowed

pytestmark = pytest.mark.unit

RECORD = PartitionRecord(
    key=PartitionKey("AB", "t", 0),
    state=S.MIRRORING,
    topic_id=uuid.UUID(int=1),
    source_topic_id=uuid.UUID(int=2),
    owner=100,
)


class Asked:
    """Records what the API was asked to do, and answers as the real operations do."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.raises: Exception | None = None
        self.known = {"AB": MirrorConfig(name="AB", source="a:1", peer=("http://x",))}

    def mirrors(self) -> dict[str, MirrorConfig]:
        return self.known

    async def create(self, config: MirrorConfig) -> None:
        self.done.append(("create", config))

    async def delete(self, mirror: str) -> None:
        self.done.append(("delete", mirror))

    async def _act(self, what: str, mirror: str, topics: Collection[str] | None) -> list[str]:
        if self.raises is not None:
            raise self.raises
        self.done.append((what, mirror, topics))
        return ["t"]

    async def start(self, mirror: str, topics: Collection[str] | None) -> list[str]:
        return await self._act("start", mirror, topics)

    async def stop(self, mirror: str, topics: Collection[str] | None) -> list[str]:
        return await self._act("stop", mirror, topics)

    async def pause(self, mirror: str, topics: Collection[str] | None) -> list[str]:
        return await self._act("pause", mirror, topics)

    async def resume(self, mirror: str, topics: Collection[str] | None) -> list[str]:
        return await self._act("resume", mirror, topics)

    async def describe(self, mirror: str) -> list[MirrorRow]:
        return [row(RECORD, Position(log_end=9, high_watermark=7, source_log_end=9, source_high_watermark=7), 12)]

    def last_mirrored(self, mirror: str) -> list[dict[str, int | str]]:
        return [{"topic": "t", "partition": 0, "offset": 0, "epoch": -1, "stopped_at_ms": 0}]

    def crash_at(self, step: str) -> None:
        self.done.append(("crash", step))


@contextmanager
def served(asked: Asked, audit: AuditLog) -> Iterator[AdminClient]:
    """The API on a free port, in its own thread."""
    loop = asyncio.new_event_loop()
    api = AdminApi(asked, audit, health=lambda: {"broker_id": 100}, metrics=lambda: "x 1\n")
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    port = asyncio.run_coroutine_threadsafe(api.listen(0, "127.0.0.1"), loop).result(10)
    client = AdminClient(f"http://127.0.0.1:{port}", timeout_s=5)
    try:
        yield client
    finally:
        client.close()
        asyncio.run_coroutine_threadsafe(api.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def test_every_request_arrives_and_every_answer_comes_back() -> None:
    asked, audit = Asked(), AuditLog(clock=lambda: 1.5)
    audit.add(EventKind.ACL, "AB", change="create", binding="ALLOW User:a READ TOPIC:t")
    audit.add(EventKind.CONFIG, "AB", topic="t", name="retention.ms", old=None, value="1")
    with served(asked, audit) as client:
        assert client.health() == {"boot": audit.boot, "broker_id": 100}
        assert client.mirrors() == list(asked.known.values())
        client.create(MirrorConfig(name="CD", source="c:1", topics="x.*"))
        client.delete("CD")
        assert client.start("AB") == ["t"]
        assert client.stop("AB", ["t"]) == client.pause("AB", []) == client.resume("AB") == ["t"]
        assert client.describe("AB")[0].lag == 5
        assert client.last_mirrored("AB")[0].offset == 0
        assert client.metrics() == "x 1\n"
        client.crash_at("stop.hold")
        boot, events = client.events(after=1)
    assert boot == audit.boot
    assert [(e.seq, e.time_ms, e.kind, e.fields["name"]) for e in events] == [(2, 1500, "config", "retention.ms")]
    assert asked.done == [
        ("create", MirrorConfig(name="CD", source="c:1", topics="x.*")),
        ("delete", "CD"),
        ("start", "AB", None),
        ("stop", "AB", ["t"]),
        ("pause", "AB", []),
        ("resume", "AB", None),
        ("crash", "stop.hold"),
    ]


@pytest.mark.parametrize(
    ("raised", "status", "by_state"),
    [
        (MirrorError("t-0 is PAUSED"), 409, True),
        (UnknownMirrorError("no mirror is called 'X'"), 404, False),
        (WireError("a:1 did not answer"), 503, False),
        (TimeoutError("waited 5 s"), 503, False),
    ],
)
def test_refusals_are_sentences_with_a_status(raised: Exception, status: int, by_state: bool) -> None:
    asked = Asked()
    asked.raises = raised
    with served(asked, AuditLog()) as client, pytest.raises(RefusedError) as refused:
        client.stop("AB")
    assert (str(refused.value), refused.value.status, refused.value.by_state) == (str(raised), status, by_state)
    assert asked.done == []


@pytest.mark.parametrize(
    ("method", "path", "body", "sentence"),
    [
        ("POST", "/mirrors/AB/fly", {}, "'fly' is not an action; there are start, stop, pause, resume"),
        ("POST", "/mirrors/AB/stop", {"topics": "t"}, "`topics` is a list of names, or is left out for all topics"),
        ("POST", "/mirrors", {"name": "x", "form": 1}, "the mirror's configuration is wrong"),
        ("POST", "/mirrors", [], "the body is a JSON object"),
        ("GET", "/events?after=x", None, "`after` is the number of an event, not 'x'"),
    ],
)
def test_nonsense_is_refused(method: str, path: str, body: Any, sentence: str) -> None:
    asked = Asked()
    with served(asked, AuditLog()) as client, pytest.raises(RefusedError) as refused:
        client._json(method, path, body)
    assert str(refused.value).startswith(sentence)
    assert asked.done == []


def test_a_process_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match="did not answer GET /health"):
        AdminClient("http://127.0.0.1:9", timeout_s=1).health()


def test_events_are_bounded_and_counted_on() -> None:
    log = AuditLog(kept=3)
    for n in range(5):
        log.add(EventKind.TOPIC, "m", n=n)
    assert [e.seq for e in log.after(0, limit=10)] == [3, 4, 5]
    assert [e.seq for e in log.after(3, limit=1)] == [4]
    assert log.after(5, limit=10) == []
    assert AuditLog().after(0, limit=10) == []


def test_lag_is_known_only_with_both_log_ends() -> None:
    here = Position(log_end=9, high_watermark=7, source_log_end=9, source_high_watermark=7)
    assert row(RECORD, here, 12).lag == 5
    assert row(RECORD, here, None).lag is None
    assert row(RECORD, None, 12).lag is None
    assert row(RECORD, here, 6).lag == 0  # the source lost records in an unclean election


def test_a_stopped_partition_shows_its_cut() -> None:
    stopped = replace(RECORD, state=S.STOPPED, last_mirrored=40, shifts=((10, 20),), stopped_at_ms=3)
    found = row(stopped, None, 99)
    assert (found.source_offset, found.destination_offset, found.lag, found.stopped_at_ms) == (50, 40, None, 3)


def test_a_request_in_the_wrong_state_names_the_partition_and_the_states() -> None:
    with pytest.raises(MirrorError, match=r"t-0 of mirror AB is PAUSED, so it cannot be started; .* MIRRORING"):
        refuse_unless([RECORD, replace(RECORD, state=S.PAUSED)], STARTABLE, "started")
    refuse_unless([RECORD], STARTABLE, "started")


@pytest.mark.parametrize("state", sorted(STOPPABLE - {S.STOPPED}))
def test_what_may_be_stopped_has_an_edge_to_it(state: S) -> None:
    assert allowed(state, S.STOPPING)


def test_metrics_text() -> None:
    text = render(
        {"a": ("gauge", "One.", [({}, 3)]), "b": ("counter", "Two.", [({"k": 'x"y'}, 2.5), ({"k": "z"}, 1_234_567)])}
    )
    assert text.splitlines() == [
        "# HELP a One.",
        "# TYPE a gauge",
        "a 3",
        "# HELP b Two.",
        "# TYPE b counter",
        'b{k="x\\"y"} 2.5',
        'b{k="z"} 1234567',
    ]
    assert memory("Name:\tx\nVmHWM:\t   20 kB\nVmRSS:\t   10 kB\n") == (10240, 20480)
    assert memory("") == (0, 0)
