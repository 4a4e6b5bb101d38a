"""A scenario's steps on a running test: start and stop mirrors, let clients write, wait until mirrors catch up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.clusters.pair import RunningTopology
from harness.core.errors import ClusterError, WaitTimeoutError
from harness.core.wait import wait_until
from harness.history.ops import F, OpType, Phase
from harness.run.scenarios import Route
from harness.run.state import Stage
from harness.topology.mirror import Cut, Mirror, PartitionState

WARM_UP_S = 120.0
_REASON_LENGTH = 400  # characters of a reason that are kept

MakeMirror = Callable[[Route], Mirror]


class RunSteps:
    """Implements harness.run.scenarios.ScenarioSteps. make: the driver of a route that has none yet."""

    def __init__(self, stage: Stage, make: MakeMirror) -> None:
        self._stage = stage
        self._make = make

    @property
    def topology(self) -> RunningTopology:
        """The running topology; for steps that a test adds."""
        return self._stage.topology

    @property
    def mirror(self) -> Mirror:
        """The first mirror; for steps that a test adds."""
        return next(iter(self._stage.mirrors.values()))

    def settle(self) -> None:
        """See ScenarioSteps."""
        stage, limit = self._stage, self._stage.plan.spec.settle_limit
        with stage.phase(Phase.SETTLE, "settle"):
            stage.stop_load()
            late: list[str] = []
            for route in list(stage.running_routes):  # in chain order: downstream mirrors catch up after those upstream
                mirror = stage.mirrors[route]
                for note in mirror.revive():  # as an operator would; it is noted, and its states are in the tables
                    stage.note(note)
                missing = mirror.await_caught_up(stage.topics_on(mirror.source), timeout_s=limit)
                late += [
                    f"{topic}-{partition} {'unknown' if lag is None else lag}"
                    for (topic, partition), lag in sorted(missing.items())
                    if lag != 0
                ]
            if late:
                stage.note(f"after {limit:g} s the mirror had not caught up: {', '.join(late[:5])}")
            stage.display.say("the mirror has caught up" if not late else f"{len(late)} partitions are behind")

    def stop_mirror(self, source: str, destination: str) -> Cut:
        """See ScenarioSteps."""
        stage, route = self._stage, (source, destination)
        mirror = stage.mirrors[route]
        with stage.phase(Phase.SCENARIO, f"stop {source}→{destination}"):
            index = stage.recorder.invoke("scenario", F.MIRROR_STOP, cluster=destination)
            cut = mirror.stop(stage.topics_on(source))
            for (topic, partition), (source_offset, destination_offset) in sorted(cut.offsets.items()):
                stage.recorder.row(
                    "mirror_states",
                    mirror=mirror.name,
                    cluster=destination,
                    topic=mirror.topic_on_destination(topic),
                    partition=partition,
                    state=PartitionState.STOPPED,
                    source_offset=source_offset,
                    destination_offset=destination_offset,
                )
            stage.recorder.complete(index, OpType.OK)
            stage.running_routes.remove(route)
            stage.display.say(f"cut recorded for {len(cut.offsets)} partitions; {destination} is writable")
            return cut

    def start_mirror(self, source: str, destination: str) -> None:
        """See ScenarioSteps."""
        stage, route = self._stage, (source, destination)
        with stage.phase(Phase.SCENARIO, f"start {source}→{destination}"):
            what = F.MIRROR_FAILBACK if (destination, source) in stage.mirrors else F.MIRROR_START
            index = stage.recorder.invoke("scenario", what, cluster=destination)
            self.launch(route)
            try:
                took = self.warm_up(route, timeout_s=stage.plan.spec.settle_limit)
            except WaitTimeoutError as error:  # the checkers judge what was not mirrored
                stage.recorder.complete(index, OpType.INFO, error="timeout", error_text=str(error)[:_REASON_LENGTH])
                stage.note(str(error)[:_REASON_LENGTH])
                return
            stage.recorder.complete(index, OpType.OK)
            stage.display.say(f"a probe record was mirrored on each of {took} partitions")

    def write(self, cluster: str, *, seconds: float) -> None:
        """See ScenarioSteps."""
        stage = self._stage
        with stage.phase(Phase.SCENARIO, f"write to {cluster}", seconds=seconds):
            stage.stop_load()
            stage.start_load(writable=(cluster,), reading=self._downstream(cluster))
            stage.work(seconds)
            stage.stop_load()

    def work(self, *, seconds: float) -> None:
        """See ScenarioSteps."""
        with self._stage.phase(Phase.SCENARIO, "clients go on", seconds=seconds):
            self._stage.work(seconds)

    def launch(self, route: Route) -> None:
        """Start the mirror of a route, creating it if there is none, and have it sampled."""
        stage = self._stage
        new = route not in stage.mirrors
        if new:
            stage.mirrors[route] = self._make(route)
            stage.topology.mirrors = list(stage.mirrors.values())
        mirror = stage.mirrors[route]
        topics = stage.topics_on(mirror.source)
        self._await_topics(mirror.source, topics)
        mirror.start(topics)
        stage.running_routes.append(route)
        if new and stage.sampler is not None:
            stage.sampler.add(mirror)

    def warm_up(self, route: Route, *, timeout_s: float = WARM_UP_S) -> int:
        """Wait until a probe record was mirrored on every partition; returns the number of partitions.

        In a chain the middle cluster accepts no writes: there the upstream mirror's probe must be mirrored on.
        """
        stage = self._stage
        mirror = stage.mirrors[route]
        topics = stage.topics_on(mirror.source)
        if any(destination == mirror.source for _, destination in stage.running_routes):
            lags = mirror.await_caught_up(topics, timeout_s=timeout_s)
            late = [f"{topic}-{number}" for (topic, number), lag in sorted(lags.items()) if lag != 0]
            if late or not lags:
                what = f"mirror {mirror.source}→{mirror.destination} to copy what is on {mirror.source}"
                raise WaitTimeoutError(f"waited {timeout_s:g} s for {what}; behind: {', '.join(late[:8]) or 'all'}")
            return len(lags)
        return len(mirror.await_mirroring(topics, recorder=stage.recorder, timeout_s=timeout_s))

    def _await_topics(self, cluster: str, topics: Sequence[str]) -> None:
        """In a chain the first mirror creates the second one's topics."""
        wait_until(
            lambda: set(topics) <= set(self._stage.topology.clusters[cluster].topics()),
            timeout_s=WARM_UP_S,
            what=f"topics {', '.join(topics)} on cluster {cluster}",
            swallow=(ClusterError,),
        )

    def _downstream(self, cluster: str) -> list[str]:
        """The cluster, and those that its records are mirrored to now."""
        found = [cluster]
        for source, destination in self._stage.running_routes:
            if source in found and destination not in found:
                found.append(destination)
        return found
