"""How a stop closes transactions that are open at the last mirrored offset: one small policy per `on_stop` value.

The followers' logs keep the producer state (followers answer DescribeProducers too); nothing is tracked here.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from harness.wire.batch_headers import headers
from harness.wire.batches import MIRROR_PID_RESET_TYPE, control_type, pid_reset_marker, transaction_marker
from harness.wire.frames import WireError
from mirrors.reference.server.design import OnStop, Toggle
from mirrors.reference.server.destination import ProducerInfo, producers
from mirrors.reference.server.hub import Hub
from mirrors.reference.server.partition import LedPartition, Tail
from mirrors.reference.server.reading import ONE_BATCH, read
from mirrors.reference.server.source import Mirrored

ClosePolicy = Callable[[Hub, LedPartition], Awaitable[None]]


async def open_transactions(hub: Hub, led: LedPartition) -> list[ProducerInfo]:
    """Producers with an open transaction in an in-sync follower's log, by their first offset. Raises WireError."""
    failures = []
    for broker in sorted(led.in_sync_followers):
        try:
            found = await producers(hub.destination, broker, (led.topic, led.partition))
        except WireError as error:
            failures.append(str(error))
            continue
        return sorted((p for p in found if p.open_since >= 0), key=lambda p: p.open_since)
    raise WireError("no in-sync follower reports its producers: " + "; ".join(failures))


async def abort_open_transactions(hub: Hub, led: LedPartition) -> None:
    """An ABORT marker for each, as the transaction coordinator would have it written."""
    now = int(time.time() * 1000)
    batches = []
    offset = led.log_end
    for producer in await open_transactions(hub, led):
        records = transaction_marker(
            commit=False,
            base_offset=offset,
            leader_epoch=led.leader_epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=max(0, producer.coordinator_epoch),
            timestamp_ms=now,
        )
        batches.append(Tail(offset, offset + 1, records))
        offset += 1
    led.append_tail(batches)
    hub.changed(led)


async def last_stable(hub: Hub, led: LedPartition) -> int:
    """Everything from the first open transaction on is discarded, records of other producers too."""
    found = await open_transactions(hub, led)
    return min(found[0].open_since, led.log_end) if found else led.log_end


async def nothing(_: Hub, __: LedPartition) -> None:
    """They stay open: nothing will ever end them on the destination."""


async def all_of_it(_: Hub, led: LedPartition) -> int:
    """Nothing is cut."""
    return led.log_end


CUT_AT_STOP: Final[Mapping[OnStop, Callable[[Hub, LedPartition], Awaitable[int]]]] = {
    OnStop.ABORT: all_of_it,
    OnStop.TRUNCATE: last_stable,
    OnStop.NOTHING: all_of_it,
}
"""The offset to cut the log to before its end is stored as the last mirrored offset. Raises WireError."""

APPEND_AT_STOP: Final[Mapping[OnStop, ClosePolicy]] = {
    OnStop.ABORT: abort_open_transactions,
    OnStop.TRUNCATE: nothing,
    OnStop.NOTHING: nothing,
}
"""Runs after it was stored: what is appended is not from the source."""


ResetPolicy = Callable[[Hub, Mirrored, int], Awaitable[None]]


async def no_reset(_: Hub, __: Mirrored, ___: int) -> None:
    """No MIRROR_PID_RESET record."""


async def append_reset(hub: Hub, mirrored: Mirrored, last_mirrored: int) -> None:
    """Append a MIRROR_PID_RESET record at the end. Stock brokers store it and ignore it.

    An interrupted stop may have written it already; then it is the last record. Raises WireError.
    """
    led = mirrored.led
    if led.log_end > last_mirrored and await _last_control_type(hub, led) == MIRROR_PID_RESET_TYPE:
        return
    records = pid_reset_marker(
        base_offset=led.log_end,
        leader_epoch=led.leader_epoch,
        source_cluster_id=mirrored.link.cluster_id,
        timestamp_ms=int(time.time() * 1000),
    )
    led.append_tail([Tail(led.log_end, led.log_end + 1, records)])
    hub.changed(led)


async def _last_control_type(hub: Hub, led: LedPartition) -> int | None:
    """The type of the last record, if it is a control record, as an in-sync follower has it."""
    if led.tail:
        return None
    for broker in sorted(led.in_sync_followers):
        found = await read(
            hub.destination,
            broker,
            topic_id=led.topic_id,
            partition=led.partition,
            offset=led.log_end - 1,
            max_bytes=ONE_BATCH,
        )
        if found.error_code is ErrorCode.none:
            data = bytes(found.records or b"")
            return next((control_type(data, batch) for batch in headers(data)), None)
    raise WireError(f"{led.topic}-{led.partition}: no in-sync follower shows its last record")


PID_RESET: Final[Mapping[Toggle, ResetPolicy]] = {Toggle.ON: append_reset, Toggle.OFF: no_reset}
