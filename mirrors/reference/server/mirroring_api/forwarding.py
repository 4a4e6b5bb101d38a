"""Forwards a request to the other processes of the destination: each acts on the partitions that it has."""

from __future__ import annotations

import asyncio
from typing import Final

from harness.wire.addresses import Address
from harness.wire.aio import Pool
from harness.wire.cluster_mirror_api import DeleteClusterMirrorResponse, TopicsResponse
from harness.wire.entity_table import Request as Body
from harness.wire.frames import WireError
from mirrors.reference.server.metadata_snapshots import MetadataSnapshots
from mirrors.reference.server.peers import Peers

FORWARDED: Final = "shatterproof-mirror-process"
"""Client id of a request that another process has checked and forwards."""

_ANSWER_S: Final = 30.0


class Forwarding:
    """One event loop. me: this process."""

    def __init__(self, me: int, peers: Peers, snapshots: MetadataSnapshots) -> None:
        self._me = me
        self._peers = peers
        self._snapshots = snapshots
        self._pool = Pool(timeout_s=_ANSWER_S, client_id=FORWARDED)

    async def to_others(self, body: Body) -> list[str]:
        """Send a request to every other process that is alive; returns the errors, one sentence each."""
        meta = self._snapshots.last
        brokers = {} if meta is None else meta.brokers
        others = {one: brokers[one] for one in sorted(self._peers.live() - {self._me}) if one in brokers}
        answers = await asyncio.gather(*(self._send(one, address, body) for one, address in others.items()))
        return [error for errors in answers for error in errors]

    def close(self) -> None:
        """Drop the connections."""
        self._pool.close()

    async def _send(self, process: int, address: Address, body: Body) -> list[str]:
        connection = self._pool.get(address)
        try:
            answer: TopicsResponse | DeleteClusterMirrorResponse = await connection.call(body)
        except WireError as error:
            connection.close()  # a process that has just come up may offer more now than when it was asked what it has
            return [f"process {process}: {error}"]
        results = [(answer.error_code, answer.error_message)]
        if isinstance(answer, TopicsResponse):
            results += [(topic.error_code, topic.error_message) for topic in answer.topics]
        return [f"process {process}: error {code} {why or ''}".strip() for code, why in results if code != 0]
