"""Registers the process with the destination's controller as a broker, and keeps it unfenced by heartbeats.

ApiVersions version 4 reports every feature range of the controller (version 3 hides features whose minimum is 0); all
of them are registered, or the controller would refuse. After a crash the controller keeps the old registration until
its session times out and answers DUPLICATE_BROKER_REGISTRATION: registration is retried, with a time limit.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Final

from kio.schema.api_versions.v4 import request as api_versions
from kio.schema.broker_heartbeat.v1 import request as heartbeat
from kio.schema.broker_heartbeat.v1.response import BrokerHeartbeatResponse
from kio.schema.broker_registration.v4 import request as registration
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.schema.unregister_broker.v0 import request as unregister
from kio.static.primitive import i16, i64, u16

from harness.core.errors import MirrorError
from harness.wire.frames import WireError
from mirrors.reference.server.hub import Hub

_LOG = logging.getLogger(__name__)

_ALL_METADATA: Final = 2**40  # an offset after every registration: this process replays no metadata
_RETRY_S: Final = 0.5
_LEAVE_S: Final = 3.0
_PLAINTEXT: Final = 0


class Registration:
    """Registers and heartbeats."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._incarnation = uuid.uuid4()
        self.fenced = True

    async def register(self, *, timeout_s: float = 60) -> None:
        """Register and wait until the controller has unfenced this broker. Raises MirrorError after the time-out."""
        deadline = self._hub.clock() + timeout_s
        last = "no answer yet"
        while self._hub.clock() < deadline:
            try:
                answer = await self._hub.destination.call_controller(await self._request())
            except WireError as error:
                last = str(error)
            else:
                if answer.error_code is ErrorCode.none:
                    self._hub.broker_epoch = int(answer.broker_epoch)
                    await self._unfence(deadline)
                    return
                last = answer.error_code.name
                if answer.error_code is ErrorCode.inconsistent_cluster_id:
                    break
            await asyncio.sleep(_RETRY_S)
        raise MirrorError(
            f"broker {self._hub.me} cannot register with the controller of "
            f"{self._hub.settings.destination.letter}: {last}"
        )

    async def keep(self) -> None:
        """Send heartbeats until cancelled; registers again when the controller has forgotten this broker."""
        while True:
            try:
                answer = await self.beat()
                if answer.error_code is not ErrorCode.none:
                    _LOG.warning("heartbeat refused: %s; registering again", answer.error_code.name)
                    self._hub.suspect_fencing()
                    self._incarnation = uuid.uuid4()
                    await self.register()
            except (WireError, MirrorError) as error:
                _LOG.warning("heartbeat: %s", error)
            await asyncio.sleep(self._hub.settings.heartbeat_s)

    async def beat(self, *, shut_down: bool = False) -> BrokerHeartbeatResponse:
        """One heartbeat. Raises WireError."""
        request = heartbeat.BrokerHeartbeatRequest(
            broker_id=BrokerId(self._hub.me),
            broker_epoch=i64(self._hub.broker_epoch),
            current_metadata_offset=i64(_ALL_METADATA),
            want_fence=False,
            want_shut_down=shut_down,
        )
        sent_at = self._hub.clock()
        answer: BrokerHeartbeatResponse = await self._hub.destination.call_controller(request, timeout_s=2)
        if answer.error_code is ErrorCode.none:
            self._hub.on_heartbeat_ack(sent_at)
            if bool(answer.is_fenced) != self.fenced:
                self.fenced = bool(answer.is_fenced)
                _LOG.info("broker %d is %s", self._hub.me, "fenced" if self.fenced else "unfenced")
        return answer

    async def leave(self) -> None:
        """Unregister, or the controller would place new topics' replicas here. Raises WireError.

        Only for a process that has no replicas.
        """
        await self._hub.destination.call_any(
            unregister.UnregisterBrokerRequest(broker_id=BrokerId(self._hub.me)), timeout_s=_LEAVE_S
        )

    async def _unfence(self, deadline: float) -> None:
        self.fenced = True
        while self._hub.clock() < deadline:
            await self.beat()
            if not self.fenced:
                return
            await asyncio.sleep(0.1)
        raise MirrorError(f"the controller did not unfence broker {self._hub.me} in time")

    async def _request(self) -> registration.BrokerRegistrationRequest:
        hub = self._hub
        asked = api_versions.ApiVersionsRequest(client_software_name="shatterproof", client_software_version="1")
        features = (await hub.destination.call_controller(asked)).supported_features
        return registration.BrokerRegistrationRequest(
            broker_id=BrokerId(hub.me),
            cluster_id=hub.cluster_id,
            incarnation_id=self._incarnation,
            listeners=tuple(
                registration.Listener(
                    name=one.name, host=one.host, port=u16(one.port), security_protocol=i16(_PLAINTEXT)
                )
                for one in hub.settings.listeners
            ),
            features=tuple(
                registration.Feature(
                    name=f.name,
                    min_supported_version=i16(f.min_version),
                    max_supported_version=i16(f.max_version),
                )
                for f in features
            ),
            rack=None,
            log_dirs=(hub.settings.log_dir,),
        )
