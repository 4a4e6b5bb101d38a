"""A typed, blocking client of one process's admin API, for the harness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import requests

from harness.core.errors import MirrorError
from mirrors.reference.server.audit import Event, EventKind
from mirrors.reference.server.describing import MirrorRow
from mirrors.reference.server.model import MirrorConfig

__all__ = [
    "AdminClient",
    "Event",
    "EventKind",
    "Events",
    "LastMirrored",
    "MirrorConfig",
    "MirrorRow",
    "RefusedError",
    "UnreachableError",
]

_TIMEOUT_S: Final = 30.0
_CONFLICT: Final = 409


class RefusedError(MirrorError):
    """The process refused, and changed nothing. status: HTTP status (409: the state does not allow it)."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status

    @property
    def by_state(self) -> bool:
        """Whether the state of a partition is the reason."""
        return self.status == _CONFLICT


class UnreachableError(MirrorError):
    """The process did not answer: it may be dead, paused or cut off. The request may have taken effect."""


@dataclass(frozen=True, kw_only=True)
class LastMirrored:
    """One partition's last mirrored offset; 0 before its first stop."""

    topic: str
    partition: int
    offset: int
    epoch: int
    stopped_at_ms: int


class Events(NamedTuple):
    """Changes, the oldest first. boot: of the process; when it changes, numbers begin at 1 again."""

    boot: str
    events: list[Event]


class AdminClient:
    """url: `http://host:port`. timeout_s: of each request. One thread per object."""

    def __init__(self, url: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._session = requests.Session()

    def health(self) -> dict[str, Any]:
        """broker_id, boot, registered, … Raises MirrorError."""
        return self._json("GET", "/health")

    def mirrors(self) -> list[MirrorConfig]:
        """All mirrors that the process knows."""
        return [MirrorConfig.from_json(one) for one in self._json("GET", "/mirrors")["mirrors"]]

    def create(self, config: MirrorConfig) -> None:
        """Create a mirror."""
        self._json("POST", "/mirrors", config.to_json())

    def delete(self, mirror: str) -> None:
        """Forget a stopped mirror."""
        self._json("DELETE", f"/mirrors/{mirror}")

    def start(self, mirror: str, topics: Sequence[str] | None = None) -> list[str]:
        """Start mirroring topics, by default all that match the mirror's patterns."""
        return self._act(mirror, "start", topics)

    def stop(self, mirror: str, topics: Sequence[str] | None = None) -> list[str]:
        """Request a stop; `describe` shows when it is done."""
        return self._act(mirror, "stop", topics)

    def pause(self, mirror: str, topics: Sequence[str] | None = None) -> list[str]:
        """Request a pause."""
        return self._act(mirror, "pause", topics)

    def resume(self, mirror: str, topics: Sequence[str] | None = None) -> list[str]:
        """Continue after a pause."""
        return self._act(mirror, "resume", topics)

    def describe(self, mirror: str) -> list[MirrorRow]:
        """The partitions of a mirror that this process has. Lag 0 refers to the time before the call."""
        return [MirrorRow(**one) for one in self._json("GET", f"/mirrors/{mirror}")["rows"]]

    def last_mirrored(self, mirror: str) -> list[LastMirrored]:
        """Each partition's last mirrored offset."""
        rows = self._json("GET", f"/mirrors/{mirror}/last-mirrored-offsets")["rows"]
        return [LastMirrored(**one) for one in rows]

    def events(self, after: int = 0) -> Events:
        """Changes after this number, some thousands at once."""
        answer = self._json("GET", f"/events?after={after}")
        events = [Event(**{**one, "kind": EventKind(one["kind"])}) for one in answer["events"]]
        return Events(str(answer["boot"]), events)

    def metrics(self) -> str:
        """Prometheus text."""
        return self._ask("GET", "/metrics").text

    def crash_at(self, step: str) -> None:
        """Have the process kill itself when it reaches this step; an empty one cancels that."""
        self._json("POST", "/crash-at", {"step": step})

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _act(self, mirror: str, action: str, topics: Sequence[str] | None) -> list[str]:
        body = {} if topics is None else {"topics": list(topics)}
        return list(self._json("POST", f"/mirrors/{mirror}/{action}", body)["topics"])

    def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        found: dict[str, Any] = self._ask(method, path, body).json()
        return found

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> requests.Response:
        try:
            answer = self._session.request(method, self.url + path, json=body, timeout=self._timeout_s)
        except requests.RequestException as error:
            raise UnreachableError(
                f"the mirror process at {self.url} did not answer {method} {path}: {error}"
            ) from error
        if answer.ok:
            return answer
        try:
            sentence = str(answer.json()["error"])
        except (ValueError, KeyError, TypeError):
            sentence = answer.text[:200]
        raise RefusedError(sentence, answer.status_code)
