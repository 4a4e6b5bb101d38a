"""Puts the handlers of one process together and adds them to its server."""

from __future__ import annotations

from typing import Final

from harness.wire import cluster_mirror_api as api
from harness.wire.server import WireServer
from mirrors.reference.server.lifecycle import Lifecycle
from mirrors.reference.server.metadata_snapshots import MetadataSnapshots
from mirrors.reference.server.mirroring_api.forwarding import Forwarding
from mirrors.reference.server.mirroring_api.known_mirrors import KnownMirrors
from mirrors.reference.server.mirroring_api.mirror_requests import MirrorRequests
from mirrors.reference.server.mirroring_api.properties import PropertyRequests
from mirrors.reference.server.mirroring_api.rules import Action
from mirrors.reference.server.mirroring_api.topic_requests import TopicRequests
from mirrors.reference.server.mirrors import Mirrors
from mirrors.reference.server.operations import Operations
from mirrors.reference.server.peers import Peers

DESCRIBE_CONFIGS, ALTER_CONFIGS = 32, 44
_VERSIONS: Final = (0, 0)


class MirroringApi:
    """See the package."""

    def __init__(
        self,
        operations: Operations,
        mirrors: Mirrors,
        lifecycle: Lifecycle,
        peers: Peers,
        snapshots: MetadataSnapshots,
    ) -> None:
        known = KnownMirrors(mirrors, peers)
        self._forwarding = Forwarding(lifecycle.hub.me, peers, snapshots)
        self._properties = PropertyRequests(mirrors, lifecycle.store, known)
        self._mirrors = MirrorRequests(operations, lifecycle, known, self._properties, self._forwarding)
        self._topics = TopicRequests(operations, mirrors, lifecycle, peers, known, self._forwarding)

    def serve(self, server: WireServer) -> None:
        """Answer the requests on a server that passes requests about configurations on already."""
        server.add(api.CREATE, _VERSIONS, self._mirrors.create)
        server.add(api.DELETE, _VERSIONS, self._mirrors.delete)
        server.add(api.LIST, _VERSIONS, self._mirrors.list_mirrors)
        server.add(api.DESCRIBE, _VERSIONS, self._mirrors.describe)
        server.add(api.START, _VERSIONS, self._topics.handler(Action.START, api.StartMirrorTopicsResponse))
        server.add(api.STOP, _VERSIONS, self._topics.handler(Action.STOP, api.StopMirrorTopicsResponse))
        server.add(api.PAUSE, _VERSIONS, self._topics.handler(Action.PAUSE, api.PauseMirrorTopicsResponse))
        server.add(api.RESUME, _VERSIONS, self._topics.handler(Action.RESUME, api.ResumeMirrorTopicsResponse))
        server.intercept(DESCRIBE_CONFIGS, self._properties.describe)
        server.intercept(ALTER_CONFIGS, self._properties.alter)

    def close(self) -> None:
        """Drop the connections to other processes."""
        self._forwarding.close()
