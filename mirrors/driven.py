"""Common base of the mirror drivers: two clusters, a site to run on, and the probe that shows that records flow."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from harness.history.recording import Recorder
from mirrors.liveness import Probe
from mirrors.site import MirrorContext


class DrivenMirror(ABC):
    """The part of harness.topology.mirror.Mirror that does not depend on the mirror's implementation."""

    def __init__(self, context: MirrorContext) -> None:
        self._source = context.source
        self._destination = context.destination
        self._site = context.site
        self._settings = context.settings
        self._lock = threading.RLock()

    @property
    def source(self) -> str:
        """Letter of the source cluster."""
        return self._source.name

    @property
    def destination(self) -> str:
        """Letter of the destination cluster."""
        return self._destination.name

    @abstractmethod
    def topic_on_destination(self, topic: str) -> str:
        """The mirrored topic's name on the destination."""

    @abstractmethod
    def _explain(self) -> str:
        """The mirror's own status, for a time-out's message."""

    def await_mirroring(
        self, topics: Sequence[str], *, recorder: Recorder, timeout_s: float
    ) -> Mapping[tuple[str, int], float]:
        """See harness.topology.mirror.Mirror."""
        probe = Probe(
            source=self._source.bootstrap,
            destination=self._destination.bootstrap,
            source_letter=self.source,
            to_destination=self.topic_on_destination,
            recorder=recorder,
            explain=self._explain,
        )
        return probe.await_mirrored(topics, timeout_s=timeout_s)
