"""A Kafka cluster seen by an asyncio client: leaders, coordinators, the active controller.

Every question is bounded by the connections' time-out and goes to the next broker when one does not answer. The
cluster keeps the brokers' addresses and the last metadata; the caller decides when it is too old (`metadata`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v6 import request as find_coordinator
from kio.schema.metadata.v12 import request as metadata_v12
from kio.schema.types import TopicName
from kio.static.primitive import i8

from harness.wire.addresses import Address, parse_addresses
from harness.wire.aio import BeforeSending, Connection, Pool, send_all
from harness.wire.frames import WireError
from harness.wire.metadata import Metadata, read_metadata

GROUP, TRANSACTION, SHARE = 0, 1, 2

ASK_AGAIN_S: Final = 0.2


class Cluster:
    """Asks brokers and controllers of one cluster. One event loop.

    bootstrap, controllers: `host:port,host:port`. controllers may be empty when none is ever asked. before_sending: see
    Connection.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        controllers: str = "",
        timeout_s: float = 5.0,
        client_id: str = "shatterproof",
        clock: Callable[[], float] = time.monotonic,
        before_sending: BeforeSending = send_all,
    ) -> None:
        self.pool = Pool(timeout_s=timeout_s, client_id=client_id, before_sending=before_sending)
        self.timeout_s = timeout_s
        self._seeds = list(parse_addresses(bootstrap))
        self._controllers = list(parse_addresses(controllers)) if controllers else []
        self._brokers: dict[int, Address] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._clock = clock
        self._all_topics: tuple[Any, Metadata] = (None, Metadata(cluster_id="", brokers={}, topics={}))

    # --- metadata ----------------------------------------------------------------------------------------------

    async def metadata(self, topics: Iterable[str] | None = None) -> Metadata:
        """Ask now. topics: None for all of them. Topics that do not exist are left out. Raises WireError."""
        wanted = (
            None
            if topics is None
            else tuple(
                metadata_v12.MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in sorted(set(topics))
            )
        )
        request = metadata_v12.MetadataRequest(
            topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        answer = await self.call_any(request)
        if answer is self._all_topics[0]:  # unchanged: the connection returned its last answer again
            self._brokers = dict(self._all_topics[1].brokers)
            return replace(self._all_topics[1], at=self._clock())
        found = read_metadata(answer, at=self._clock())
        self._brokers = dict(found.brokers)
        if topics is None:
            self._all_topics = (answer, found)
        return found

    async def brokers(self) -> Mapping[int, Address]:
        """Broker id → address, asked when not known yet. Raises WireError."""
        if not self._brokers:
            await self.metadata(())
        return self._brokers

    async def coordinator_of(self, key: str, kind: int = GROUP) -> int:
        """The broker that coordinates a group, a transactional id or a share group.

        Where none is available yet (the first request makes Kafka create the coordinators' topic) it is asked again
        within the time-out. Raises WireError.
        """
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        request = find_coordinator.FindCoordinatorRequest(key_type=i8(kind), coordinator_keys=(key,))
        deadline = self._clock() + self.timeout_s
        while True:
            found = (await self.call_any(request)).coordinators[0]
            if found.error_code is not ErrorCode.coordinator_not_available or self._clock() > deadline:
                break
            await asyncio.sleep(ASK_AGAIN_S)
        if found.error_code is not ErrorCode.none:
            raise WireError(f"no coordinator for {key!r}: {found.error_code.name} {found.error_message or ''}".strip())
        broker = int(found.node_id)
        self._brokers[broker] = Address(str(found.host), int(found.port))
        self._coordinators[kind, key] = broker
        return broker

    def forget_coordinator(self, key: str, kind: int = GROUP) -> None:
        """Ask again next time: the broker answered that it is not the coordinator."""
        self._coordinators.pop((kind, key), None)

    # --- asking ------------------------------------------------------------------------------------------------

    def connection(self, address: Address, purpose: str = "") -> Connection:
        """The connection to an address kept for a purpose."""
        return self.pool.get(address, purpose)

    async def broker(self, broker_id: int, purpose: str = "") -> Connection:
        """The connection to a broker. Raises WireError when no metadata has it."""
        if broker_id not in self._brokers:
            await self.metadata(())
        address = self._brokers.get(broker_id)
        if address is None:
            raise WireError(f"broker {broker_id} is not in this cluster's metadata")
        return self.pool.get(address, purpose)

    async def call_broker(self, broker_id: int, request: Any, *, timeout_s: float | None = None) -> Any:
        """Ask one broker. Raises WireError."""
        return await (await self.broker(broker_id)).call(request, timeout_s=timeout_s)

    async def call_any(self, request: Any, *, timeout_s: float | None = None) -> Any:
        """Ask one broker after the other until one answers. Raises WireError naming each failure."""
        failures = []
        for address in self._candidates():
            try:
                answer = await self.pool.get(address).call(request, timeout_s=timeout_s)
            except WireError as error:
                failures.append(str(error))
                continue
            self._seeds.sort(key=lambda seed: seed != address)  # next time begin with the one that answered
            return answer
        raise WireError("no broker answered: " + "; ".join(failures))

    async def call_coordinator(self, key: str, request: Any, *, kind: int = GROUP) -> Any:
        """Ask the coordinator of a key. On NOT_COORDINATOR the caller calls `forget_coordinator` and asks again."""
        try:
            return await self.call_broker(await self.coordinator_of(key, kind), request)
        except WireError:
            self.forget_coordinator(key, kind)
            raise

    async def call_controller(self, request: Any, *, timeout_s: float | None = None) -> Any:
        """Ask the active controller: the one that does not say NOT_CONTROLLER. Raises WireError."""
        if not self._controllers:
            raise WireError("no controller addresses are configured for this cluster")
        failures = []
        for address in list(self._controllers):
            try:
                answer = await self.pool.get(address).call(request, timeout_s=timeout_s)
            except WireError as error:
                failures.append(str(error))
                continue
            if getattr(answer, "error_code", ErrorCode.none) is ErrorCode.not_controller:
                failures.append(f"{address} is not the active controller")
                continue
            self._controllers.sort(key=lambda one: one != address)
            return answer
        raise WireError("no active controller: " + "; ".join(failures))

    @property
    def controllers(self) -> Sequence[Address]:
        """Controllers' addresses, the last active one first."""
        return tuple(self._controllers)

    def close(self) -> None:
        """Drop all connections."""
        self.pool.close()

    def _candidates(self) -> Iterable[Address]:
        return list(dict.fromkeys([*self._seeds[:1], *self._brokers.values(), *self._seeds]))
