"""Where a partition resumes after a crash: one small policy per `resume` value."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import request as fetch
from kio.schema.types import BrokerId
from kio.static.primitive import i8, i32, i32Timedelta, i64

from harness.wire.batch_headers import headers
from harness.wire.frames import WireError
from mirrors.reference.server.design import Resume
from mirrors.reference.server.source import Mirrored

_LOG = logging.getLogger(__name__)

_NO_WAIT: Final = i32Timedelta.parse(datetime.timedelta())
_ONE_BATCH: Final = 1  # a broker sends the first batch whole, however small the limit is

ResumePolicy = Callable[[Mirrored], Awaitable[None]]


async def exact(_: Mirrored) -> None:
    """At the log's end."""


async def replay(mirrored: Mirrored) -> None:
    """The source's last batch again, after the log end: at least once, as a client-based mirror would do."""
    led, link = mirrored.led, mirrored.link
    source = led.shifts.source(led.log_end) - 1
    leader = link.leader(led.topic, led.partition)
    if source < 0 or leader is None:
        return
    part = fetch.FetchPartition(
        partition=i32(led.partition), fetch_offset=i64(source), partition_max_bytes=i32(_ONE_BATCH)
    )
    request = fetch.FetchRequest(
        replica_id=BrokerId(-1),
        max_wait=_NO_WAIT,
        min_bytes=i32(0),
        max_bytes=i32(_ONE_BATCH),
        isolation_level=i8(0),
        topics=(fetch.FetchTopic(topic_id=mirrored.source_topic_id, partitions=(part,)),),
        forgotten_topics_data=(),
    )
    found = (await link.cluster.call_broker(leader[0], request)).responses[0].partitions[0]
    if found.error_code is not ErrorCode.none:
        raise WireError(f"{mirrored.name}: the last batch cannot be read again: {found.error_code.name}")
    for batch in headers(bytes(found.records or b"")):
        _LOG.info("%s: sending offsets %d to %d again", mirrored.name, batch.base_offset, batch.last_offset)
        led.shifts.begin(led.log_end, batch.base_offset)
        return


RESUME: Final[Mapping[Resume, ResumePolicy]] = {Resume.EXACT: exact, Resume.REPLAY: replay}
