"""Keeps producer ids of source and destination apart (`producer_ids = reserved_block`).

Every cluster hands out producer ids in blocks from 0 on, so equal ids on two clusters are the normal case, and with
ids verbatim a destination's broker takes a local producer's first batches for duplicates of the source's. As a
registered broker this process may ask the controller for blocks (AllocateProducerIds): it discards them until
the next one is above the source's range and a margin. Then it uses up what the real brokers have left of the blocks
that they got before, so that their next id comes from a new one.

It does not protect producers that already have their id, nor against a source that outgrows the margin later.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from typing import Final

from kio.schema.allocate_producer_ids.v0 import request as allocate
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4 import request as init_producer_id
from kio.schema.types import BrokerId
from kio.static.primitive import i32Timedelta, i64

from harness.wire.cluster import Cluster
from harness.wire.frames import WireError
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.settings import FIRST_MIRROR_ID

_LOG = logging.getLogger(__name__)

BLOCK: Final = 1000
MARGIN: Final = 20 * BLOCK

_TRANSACTION_TIMEOUT: Final = i32Timedelta.parse(datetime.timedelta(minutes=1))
_AT_ONCE: Final = 50
_TRIES: Final = 60
_RETRY_S: Final = 0.25


async def reserve(hub: Hub, source: Cluster) -> None:
    """Move the destination's next producer ids above the source's. Raises WireError."""
    top = await highest_id(source)
    wanted = top + MARGIN
    blocks = 0
    while await _next_block(hub) < wanted:
        blocks += 1
    used = await _use_up(hub.destination, wanted)
    _LOG.info("producer ids: the source is at %d; %d blocks and %d ids were skipped here", top, blocks, used)


async def highest_id(cluster: Cluster) -> int:
    """The highest producer id that a cluster's brokers hand out now: asks each for a new one. Raises WireError."""
    return max([await _new_id(cluster, broker) for broker in await _real_brokers(cluster)], default=-1)


async def _real_brokers(cluster: Cluster) -> list[int]:
    return sorted(b for b in (await cluster.metadata(())).brokers if b < FIRST_MIRROR_ID)


async def _new_id(cluster: Cluster, broker: int) -> int:
    request = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout=_TRANSACTION_TIMEOUT)
    for _ in range(_TRIES):
        answer = await cluster.call_broker(broker, request)
        if answer.error_code is ErrorCode.none:
            return int(answer.producer_id)
        if not answer.error_code.retriable:
            break
        await asyncio.sleep(_RETRY_S)
    raise WireError(f"broker {broker} hands out no producer id: {answer.error_code.name}")


async def _next_block(hub: Hub) -> int:
    """Take a block; returns the first id after it."""
    request = allocate.AllocateProducerIdsRequest(broker_id=BrokerId(hub.me), broker_epoch=i64(hub.broker_epoch))
    answer = await hub.destination.call_controller(request)
    if answer.error_code is not ErrorCode.none:
        raise WireError(f"the controller gives no producer ids: {answer.error_code.name}")
    return int(answer.producer_id_start) + int(answer.producer_id_len)


async def _use_up(cluster: Cluster, wanted: int) -> int:
    """Ask every real broker for ids until they come from new blocks; returns how many were used up."""

    async def one(broker: int) -> int:
        used = 1
        while await _new_id(cluster, broker) < wanted:
            await asyncio.gather(*(_new_id(cluster, broker) for _ in range(_AT_ONCE)))
            used += 1 + _AT_ONCE
        return used

    return sum(await asyncio.gather(*(one(broker) for broker in await _real_brokers(cluster))))
