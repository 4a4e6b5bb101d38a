"""The brokers of the destination as an administrator's client asks them: those that have Cluster Mirroring.

Which requests a broker has is asked once per broker (ApiVersions). Where only some have them, only those are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kio.schema.api_versions.v4 import request as api_versions

from harness.core.errors import MirrorError
from harness.wire.cluster_mirror_api import CREATE, DESCRIBE, LEVEL_FEATURE, LIST, START, STOP
from harness.wire.entity_table import Request, Response
from harness.wire.frames import WireError, api_name
from harness.wire.metadata import Metadata
from harness.wire.view import ClusterView

T = TypeVar("T", bound=Response)

NEEDED: Final = (CREATE, START, STOP, LIST, DESCRIBE)
_ASK: Final = api_versions.ApiVersionsRequest(client_software_name="shatterproof", client_software_version="1")


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What one broker has. level: of the finalized feature `mirror.version`; 0 where there is none."""

    requests: frozenset[int]
    level: int

    @property
    def missing(self) -> tuple[int, ...]:
        """Requests that the driver needs and the broker does not have."""
        return tuple(key for key in NEEDED if key not in self.requests)


class Brokers:
    """One thread per object. bootstrap: of the clients' listener. timeout_s: of each request."""

    def __init__(self, bootstrap: str, *, timeout_s: float) -> None:
        self.view = ClusterView(bootstrap, timeout_s=timeout_s)
        self._abilities: dict[int, Abilities] = {}

    def abilities(self) -> tuple[Mapping[int, Abilities], Mapping[int, str]]:
        """(broker → what it has, brokers that did not answer and why). Raises: WireError when none answers."""
        silent = {}
        there = self.view.metadata(()).brokers
        for broker in there:
            if broker not in self._abilities:
                try:
                    self._abilities[broker] = _abilities(self.view.ask_broker(broker, _ASK))
                except WireError as error:
                    silent[broker] = str(error)
        return {broker: found for broker, found in self._abilities.items() if broker in there}, silent

    def ask_any(self, request: Request, kind: type[T]) -> T:
        """One request to one broker after the other that has it, until one answers.

        Raises: WireError naming each failure; MirrorError when no broker ever had the request.
        """
        able, silent = self._able(request)
        failures = list(silent.values())
        for broker in able:
            try:
                return self._asked(broker, request, kind)
            except WireError as error:
                failures.append(str(error))
        raise WireError("no broker answered: " + "; ".join(failures))

    def ask_all(self, request: Request, kind: type[T]) -> tuple[dict[int, T], dict[int, str]]:
        """One request to every broker that has it: (the answers, brokers that did not answer and why).

        Raises: WireError when none answers with the list of brokers; MirrorError when no broker ever had the request.
        """
        able, silent = self._able(request)
        answers: dict[int, T] = {}
        failures = dict(silent)
        for broker in able:
            try:
                answers[broker] = self._asked(broker, request, kind)
            except WireError as error:
                failures[broker] = str(error)
        return answers, failures

    def metadata(self, topics: Iterable[str]) -> Metadata:
        """Raises: WireError."""
        return self.view.metadata(topics)

    def close(self) -> None:
        """Drop all connections."""
        self.view.close()

    def _asked(self, broker: int, request: Request, kind: type[T]) -> T:
        answer = self.view.ask_broker(broker, request)
        assert isinstance(answer, kind)
        return answer

    def _able(self, request: Request) -> tuple[list[int], Mapping[int, str]]:
        found, silent = self.abilities()
        able = sorted(broker for broker, has in found.items() if request.__api_key__ in has.requests)
        if not able and not silent:
            missing = f"no broker of the destination has the request {api_name(request.__api_key__)}"
            gone = sorted(b for b, has in self._abilities.items() if request.__api_key__ in has.requests)
            raise WireError(f"{missing} now: {gone} had it") if gone else MirrorError(missing)
        return able, silent


def _abilities(answer: Any) -> Abilities:
    levels = {str(one.name): int(one.max_version_level) for one in answer.finalized_features}
    return Abilities(
        requests=frozenset(int(one.api_key) for one in answer.api_keys if int(one.min_version) == 0),
        level=levels.get(LEVEL_FEATURE, 0),
    )
