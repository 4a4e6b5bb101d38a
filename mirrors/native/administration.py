"""One mirror of the destination, administered over the wire: its requests, rows and cuts. Every call is bounded."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence

from harness.wire import cluster_mirror_api as api
from harness.wire.cluster_mirror_api import STATE_TOPIC, MirrorErrorCode
from harness.wire.frames import WireError
from harness.wire.metadata import by_leader
from harness.wire.view import EARLIEST, LATEST
from mirrors.native import cut
from mirrors.native.brokers import Brokers
from mirrors.native.requests import Refusal, refusals
from mirrors.native.rows import Partition, Row, merged, rows_of

SOURCE_ID, BOOTSTRAP = "mirror.source.cluster.id", "bootstrap.servers"


class Administration:
    """One thread per object. mirror: its name; source_id: the cluster id of its source."""

    def __init__(self, mirror: str, brokers: Brokers, *, source_id: str) -> None:
        self.mirror = mirror
        self.brokers = brokers
        self._source_id = source_id

    def exists(self) -> bool:
        """Whether the mirror was created. Raises: WireError, also for an error in the answer; MirrorError."""
        answer = self.brokers.ask_any(api.ListClusterMirrorsRequest(), api.ListClusterMirrorsResponse)
        if answer.error_code:
            raise WireError(str(Refusal("list mirrors", answer.error_code, answer.error_message or "")))
        return self.mirror in {one.mirror_name for one in answer.mirrors}

    def create(self, bootstrap: str) -> Refusal | None:
        """Create the mirror; one that exists is no refusal. Raises: WireError, MirrorError."""
        settings = {BOOTSTRAP: bootstrap, SOURCE_ID: self._source_id}
        request = api.CreateClusterMirrorRequest(
            mirror_name=self.mirror,
            config=tuple(api.ClusterMirrorConfig(name=name, value=value) for name, value in settings.items()),
        )
        answer = self.brokers.ask_any(request, api.CreateClusterMirrorResponse)
        if answer.error_code in (0, MirrorErrorCode.CLUSTER_MIRROR_ALREADY_EXISTS):
            return None
        return Refusal(f"create mirror {self.mirror}", answer.error_code, answer.error_message or "")

    def state_is_led(self) -> bool:
        """Whether every partition of the mirrors' state topic has a leader. Raises: WireError."""
        parts = list(self.brokers.metadata([STATE_TOPIC]).partitions())
        return bool(parts) and all(part.leader is not None for part in parts)

    def start(self, topics: Mapping[str, tuple[uuid.UUID, int]]) -> tuple[Refusal, ...]:
        """topics: name → (id on the source, number of partitions). Raises: WireError, MirrorError."""
        request = api.StartMirrorTopicsRequest(
            mirror_name=self.mirror,
            topics=tuple(
                api.StartedTopic(topic_id=topic_id, topic_name=name, num_partitions=count)
                for name, (topic_id, count) in sorted(topics.items())
            ),
        )
        return refusals("start", self.brokers.ask_any(request, api.StartMirrorTopicsResponse))

    def stop(self, topics: Iterable[str]) -> tuple[Refusal, ...]:
        """Raises: WireError, MirrorError."""
        request = api.StopMirrorTopicsRequest(mirror_name=self.mirror, topics=_named(topics))
        return refusals("stop", self.brokers.ask_any(request, api.StopMirrorTopicsResponse))

    def pause(self, topics: Iterable[str]) -> tuple[Refusal, ...]:
        """Topics that are paused already are no refusal. Raises: WireError, MirrorError."""
        request = api.PauseMirrorTopicsRequest(mirror_name=self.mirror, topics=_named(topics))
        answer = self.brokers.ask_any(request, api.PauseMirrorTopicsResponse)
        return refusals("pause", answer, fine=(MirrorErrorCode.MIRROR_TOPIC_ALREADY_PAUSED,))

    def resume(self, topics: Iterable[str]) -> tuple[Refusal, ...]:
        """Topics that are not paused are no refusal. Raises: WireError, MirrorError."""
        request = api.ResumeMirrorTopicsRequest(mirror_name=self.mirror, topics=_named(topics))
        answer = self.brokers.ask_any(request, api.ResumeMirrorTopicsResponse)
        return refusals("resume", answer, fine=(MirrorErrorCode.MIRROR_TOPIC_NOT_PAUSED,))

    def rows(self, topics: Collection[str]) -> list[Row]:
        """The partitions of these topics. Raises: WireError when no broker answers; MirrorError."""
        request = api.DescribeClusterMirrorsRequest(mirror_names=(self.mirror,))
        answers, silent = self.brokers.ask_all(request, api.DescribeClusterMirrorsResponse)
        found = {broker: rows_of(answer, self.mirror) for broker, answer in answers.items() if not answer.error_code}
        for broker in answers.keys() - found.keys():
            silent[broker] = str(Refusal("describe", answers[broker].error_code, answers[broker].error_message or ""))
        parts = self.brokers.metadata(topics).partitions()
        leaders = {(part.topic, part.partition): part.leader for part in parts}
        return [row for row in merged(found, leaders, silent=silent).values() if row.topic in topics]

    def last_epochs(self, ids: cut.TopicIds, partitions: Sequence[Partition]) -> tuple[dict[Partition, int], bool]:
        """(partition → last mirrored epoch, whether brokers answer such lookups). Raises: WireError, MirrorError."""
        request = api.DescribeClusterMirrorsRequest(
            mirror_names=(self.mirror,),
            cluster_id=self._source_id,
            last_mirror_epoch_lookups=cut.lookups(ids, partitions),
        )
        answers, _ = self.brokers.ask_all(request, api.DescribeClusterMirrorsResponse)
        return cut.last_epochs(answers.values(), ids), any(answer.lookup_results for answer in answers.values())

    def cut(self, ids: cut.TopicIds, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
        """Partition → (source offset, destination offset) where its mirroring ended, of those for which it is known.

        Raises: WireError, MirrorError.
        """
        epochs, _ = self.last_epochs(ids, partitions)
        view = self.brokers.view
        ends: dict[Partition, int] = {}
        empty: list[Partition] = []
        for leader, places in by_leader(view.metadata({topic for topic, _ in partitions}).partitions()).items():
            asked = {place: epochs[place] for place in places if place in epochs}
            rest = {place: -1 for place in places if place in partitions and place not in epochs}
            try:
                if asked:
                    ends.update(cut.ends_in(view.ask_broker(leader, cut.end_request(asked))))
                if rest:
                    first, last = (view.offsets(leader, rest, timestamp=which) for which in (EARLIEST, LATEST))
                    empty += [place for place in rest if first.get(place) == last.get(place) == 0]
            except WireError:
                continue
        return cut.offsets(partitions, epochs, ends, empty)

    def close(self) -> None:
        """Drop all connections."""
        self.brokers.close()

    def topic_ids(self, topics: Iterable[str]) -> dict[str, uuid.UUID]:
        """Topic → its id on the destination. Raises: WireError."""
        return {name: topic.topic_id for name, topic in self.brokers.metadata(topics).topics.items()}


def _named(topics: Iterable[str]) -> tuple[api.NamedTopic, ...]:
    return tuple(api.NamedTopic(topic_name=topic) for topic in sorted(topics))
