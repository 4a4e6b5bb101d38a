"""CreateClusterMirror, DeleteClusterMirror, ListClusterMirrors and DescribeClusterMirrors."""

from __future__ import annotations

from collections.abc import Sequence

from harness.wire import cluster_mirror_api as api
from harness.wire.cluster_mirror_api import MirrorErrorCode
from harness.wire.server import Request
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.mirroring_api.forwarding import FORWARDED, Forwarding
from mirrors.reference.server.mirroring_api.known_mirrors import KnownMirrors
from mirrors.reference.server.mirroring_api.outcomes import (
    BAD_REQUEST,
    NO_ANSWER,
    OK,
    Outcome,
    outcome_of,
    unknown_mirror,
)
from mirrors.reference.server.mirroring_api.properties import (
    BOOTSTRAP,
    REQUIRED,
    SOURCE_ID,
    PropertyRequests,
    mirror_config,
)
from mirrors.reference.server.mirroring_api.rows import last_mirror_epochs, topics_of
from mirrors.reference.server.mirroring_api.rules import delete_refusal
from mirrors.reference.server.operations import Operations


class MirrorRequests:
    """The handlers."""

    def __init__(
        self,
        operations: Operations,
        lifecycle: Lifecycle,
        known: KnownMirrors,
        properties: PropertyRequests,
        forwarding: Forwarding,
    ) -> None:
        self._operations = operations
        self._life = lifecycle
        self._known = known
        self._properties = properties
        self._forwarding = forwarding

    async def create(self, request: Request) -> api.CreateClusterMirrorResponse:
        """CreateClusterMirror."""
        asked: api.CreateClusterMirrorRequest = request.decode()
        outcome = await outcome_of(lambda: self._create(asked), not_allowed=BAD_REQUEST)
        return api.CreateClusterMirrorResponse(error_code=outcome.code, error_message=outcome.message)

    async def _create(self, asked: api.CreateClusterMirrorRequest) -> Outcome:
        name = asked.mirror_name
        properties = {one.name: one.value for one in asked.config if one.value is not None}
        async with self._known.changing:
            await self._known.read()
            if name in self._operations.mirrors():
                return Outcome(MirrorErrorCode.CLUSTER_MIRROR_ALREADY_EXISTS, f"mirror {name} exists already")
            if any(not properties.get(one) for one in REQUIRED):
                return Outcome(BAD_REQUEST)  # the authors' build says no more than that
            config = mirror_config(name, properties)
            config.check()
            await self._life.until_not_fenced()
            await self._properties.keep(name, properties)
            await self._operations.create(config)
        return OK

    async def delete(self, request: Request) -> api.DeleteClusterMirrorResponse:
        """DeleteClusterMirror."""
        asked: api.DeleteClusterMirrorRequest = request.decode()
        forwarded = request.client_id == FORWARDED
        outcome = await outcome_of(
            lambda: self._delete(asked, forwarded=forwarded), not_allowed=MirrorErrorCode.CLUSTER_MIRROR_NOT_EMPTY
        )
        return api.DeleteClusterMirrorResponse(error_code=outcome.code, error_message=outcome.message)

    async def _delete(self, asked: api.DeleteClusterMirrorRequest, *, forwarded: bool) -> Outcome:
        """Other processes first: this one keeps the mirror until none of them has it."""
        name = asked.mirror_name
        await self._known.refresh()
        if name not in self._operations.mirrors():
            return OK if forwarded else unknown_mirror(name)
        refusal = delete_refusal(name, self._life.records.values())
        if refusal is not None:
            return refusal
        if not forwarded and (errors := await self._forwarding.to_others(asked)):
            return Outcome(NO_ANSWER, "; ".join(errors))
        async with self._known.changing:
            if name in self._operations.mirrors():
                await self._operations.delete(name)
                await self._properties.keep(name, None)
            for key in [key for key in self._life.records if key.mirror == name]:
                del self._life.records[key]  # of other processes, which have deleted them
        return OK

    async def list_mirrors(self, request: Request) -> api.ListClusterMirrorsResponse:
        """ListClusterMirrors."""
        asked: api.ListClusterMirrorsRequest = request.decode()
        outcome = await outcome_of(self._known.refresh, not_allowed=NO_ANSWER)
        if outcome is not OK:
            return api.ListClusterMirrorsResponse(error_code=outcome.code, error_message=outcome.message)
        listed = tuple(
            self._listed(name, names=asked.include_topic_names) for name in sorted(self._operations.mirrors())
        )
        return api.ListClusterMirrorsResponse(error_code=OK.code, mirrors=listed)

    def _listed(self, mirror: str, *, names: bool) -> api.ListedMirror:
        topics = sorted({key.topic for key in self._life.records if key.mirror == mirror})
        properties = self._properties.of(mirror)
        return api.ListedMirror(
            mirror_name=mirror,
            source_bootstrap=properties[BOOTSTRAP],
            source_cluster_id=properties.get(SOURCE_ID, ""),
            topic_count=len(topics),
            topic_names=tuple(topics) if names else (),
        )

    async def describe(self, request: Request) -> api.DescribeClusterMirrorsResponse:
        """DescribeClusterMirrors: the partitions that this process has."""
        asked: api.DescribeClusterMirrorsRequest = request.decode()
        if not set(asked.mirror_names) <= self._operations.mirrors().keys():
            outcome = await outcome_of(self._known.refresh, not_allowed=NO_ANSWER)
            if outcome is not OK:
                return api.DescribeClusterMirrorsResponse(error_code=outcome.code, error_message=outcome.message)
        me = self._life.hub.me
        own = [record for record in self._life.records.values() if record.owner == me]
        names: Sequence[str] = asked.mirror_names or sorted(self._operations.mirrors())
        return api.DescribeClusterMirrorsResponse(
            error_code=OK.code,
            mirrors=tuple(self._described(name) for name in names),
            lookup_results=last_mirror_epochs(asked.last_mirror_epoch_lookups, own, source_cluster=asked.cluster_id),
        )

    def _described(self, mirror: str) -> api.DescribedMirror:
        if mirror not in self._operations.mirrors():
            return api.DescribedMirror(error_code=unknown_mirror(mirror).code, mirror_name=mirror)
        life = self._life
        own = [r for key, r in life.records.items() if key.mirror == mirror and r.owner == life.hub.me]
        topics = topics_of(own, lambda record: life.mirrored(record.key))
        return api.DescribedMirror(error_code=OK.code, mirror_name=mirror, topics=topics)
