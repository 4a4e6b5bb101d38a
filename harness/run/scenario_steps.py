"""A scenario's steps on a running test: start and stop mirrors, let clients write, wait until mirrors catch up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.clusters.pair import RunningTopology
from harness.core.errors import ClusterError, MirrorError, RequestRefusedError, WaitTimeoutError
from harness.core.wait import wait_until
from harness.evidence.snapshots import snapshot_mirror
from harness.history.ops import F, OpType, Phase
from harness.run.moment_faults import MomentFaults
from harness.run.scenarios import Route
from harness.run.state import Stage
from harness.topology.mirror import Cut, Mirror, PartitionState
from harness.wire.client import WireError

WARM_UP_S = 120.0
ASK_AGAIN_S = 1.0
"""How long an operator waits before a request that was refused is sent again."""
_FAILURES = (MirrorError, ClusterError, WireError, WaitTimeoutError)
"""Of a request to a mirror: findings about it, not failures of the run."""
_REASON_LENGTH = 400  # characters of a reason that are kept

MakeMirror = Callable[[Route], Mirror]


class RunSteps:
    """Implements harness.run.scenarios.ScenarioSteps. make: the driver of a route that has none yet."""

    def __init__(self, stage: Stage, make: MakeMirror) -> None:
        self._stage = stage
        self._make = make
        self._faults = MomentFaults(stage)
        self._sampled: set[Route] = set()

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
        self._faults.come_to("settle")
        stage, limit = self._stage, self._stage.plan.spec.settle_limit
        with stage.phase(Phase.SETTLE, "settle"):
            stage.stop_load()
            late: list[str] = []
            for route in list(stage.running_routes):  # in chain order: downstream mirrors catch up after those upstream
                mirror = stage.mirrors[route]
                self._revive(mirror)
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
        self._faults.come_to("stop", route)
        mirror = stage.mirrors.get(route)
        if mirror is None or route not in stage.running_routes:
            self._faults.skip("stopping", route)
            stage.note(f"the mirror {source}→{destination} was not stopped: it does not run")
            return Cut({})
        with (
            stage.phase(Phase.SCENARIO, f"stop {source}→{destination}"),
            self._faults.within("stopping", route, mirror, PartitionState.STOPPING),
        ):
            index = stage.recorder.invoke("scenario", F.MIRROR_STOP, cluster=destination)
            try:
                cut = self._ask_to_stop(mirror, stage.topics_on(source))
            except _FAILURES as error:
                self._failed(index, mirror, error, f"the stop of mirror {source}→{destination}")
                return Cut({})
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
        self._faults.come_to("start", route)
        if (destination, source) in stage.running_routes:
            self._faults.skip("truncation", route)
            stage.note(
                f"the mirror {source}→{destination} was not started: {destination}→{source} was not stopped before"
            )
            return
        mirror = self._driver(route)
        with (
            stage.phase(Phase.SCENARIO, f"start {source}→{destination}"),
            self._faults.within("truncation", route, mirror, PartitionState.PREPARING),
        ):
            what = F.MIRROR_FAILBACK if (destination, source) in stage.mirrors else F.MIRROR_START
            index = stage.recorder.invoke("scenario", what, cluster=destination)
            try:
                self.launch(route)
                took = self.warm_up(route, timeout_s=stage.plan.spec.settle_limit)
            except _FAILURES as error:  # the checkers judge what was not mirrored
                self._failed(index, mirror, error, f"the start of mirror {source}→{destination}")
                if isinstance(error, RequestRefusedError):
                    stage.running_routes.remove(route)
                return
            stage.recorder.complete(index, OpType.OK)
            stage.display.say(f"a probe record was mirrored on each of {took} partitions")

    def write(self, cluster: str, *, seconds: float) -> None:
        """See ScenarioSteps."""
        self._faults.come_to("write", cluster)
        stage = self._stage
        with stage.phase(Phase.SCENARIO, f"write to {cluster}", seconds=seconds):
            self._move(cluster)
            stage.work(seconds)
            stage.stop_load()

    def move(self, cluster: str) -> None:
        """See ScenarioSteps."""
        self._faults.come_to("move", cluster)
        with self._stage.phase(Phase.SCENARIO, f"move to {cluster}"):
            self._move(cluster)

    def moment(self, name: str) -> None:
        """See ScenarioSteps."""
        self._faults.come_to(name)

    def work(self, *, seconds: float) -> None:
        """See ScenarioSteps."""
        self._faults.come_to("work")
        with self._stage.phase(Phase.SCENARIO, "clients go on", seconds=seconds):
            self._stage.work(seconds)

    def launch(self, route: Route) -> None:
        """Start the mirror of a route, creating it if there is none, and have it sampled."""
        stage, mirror = self._stage, self._driver(route)
        topics = stage.topics_on(mirror.source)
        self._await_topics(mirror.source, topics)
        stage.running_routes.append(route)  # also when it does not start in time: it may still do so
        try:
            mirror.start(topics)
        finally:
            if stage.sampler is not None and route not in self._sampled:  # else the sampler finds it when it starts
                stage.sampler.add(mirror)
            self._sampled.add(route)

    def _driver(self, route: Route) -> Mirror:
        """The driver of a route, made if there is none."""
        stage = self._stage
        if route not in stage.mirrors:
            stage.mirrors[route] = self._make(route)
            stage.topology.mirrors = list(stage.mirrors.values())
        return stage.mirrors[route]

    def _ask_to_stop(self, mirror: Mirror, topics: Sequence[str]) -> Cut:
        """Stop; one that is refused is asked for again, as an operator would, until the settle limit.

        Raises: RequestRefusedError with the number of refusals and the last reason, and whatever else the mirror says.
        """
        stage, limit = self._stage, self._stage.plan.spec.settle_limit
        began, refusals = stage.recorder.clock.now_ns(), 0
        while True:
            try:
                return mirror.stop(topics)
            except RequestRefusedError as error:
                refusals += 1
                tried_s = (stage.recorder.clock.now_ns() - began) / 1e9
                if refusals == 1:
                    stage.note(f"the stop of mirror {mirror.source}→{mirror.destination} was refused: {error}")
                if tried_s >= limit:
                    raise RequestRefusedError(f"refused {refusals} times in {tried_s:.0f} s: {error}") from error
            stage.interrupts.raise_if_any()
            stage.recorder.clock.sleep(ASK_AGAIN_S)

    def _failed(self, index: int, mirror: Mirror, error: Exception, what: str) -> None:
        """Record a request that failed, and the states that the mirror describes then."""
        stage, text = self._stage, str(error)[:_REASON_LENGTH]
        refused = isinstance(error, RequestRefusedError)
        for note in snapshot_mirror(mirror, stage.recorder):
            stage.note(note)
        type_, name = (OpType.FAIL, "refused") if refused else (OpType.INFO, "timeout")
        stage.recorder.complete(index, type_, error=name, error_text=text)
        stage.note(f"{what} {'was refused' if refused else 'did not end'}: {text}")

    def _revive(self, mirror: Mirror) -> None:
        """As an operator would; it is noted, and its states are in the tables."""
        try:
            for note in mirror.revive():
                self._stage.note(note)
        except MirrorError as error:
            self._stage.note(f"mirror {mirror.source}→{mirror.destination} could not be started again: {error}")

    def _move(self, cluster: str) -> None:
        self._stage.stop_load()
        self._stage.start_load(writable=(cluster,), reading=self._downstream(cluster))

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
