"""Where a partition resumes after a crash: one small policy per `resume` value."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from harness.wire.batch_headers import headers
from harness.wire.frames import WireError
from mirrors.reference.server.design import Resume
from mirrors.reference.server.reading import ONE_BATCH, read
from mirrors.reference.server.source import Mirrored

_LOG = logging.getLogger(__name__)


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
    found = await read(
        link.cluster,
        leader[0],
        topic_id=mirrored.source_topic_id,
        partition=led.partition,
        offset=source,
        max_bytes=ONE_BATCH,
    )
    if found.error_code is not ErrorCode.none:
        raise WireError(f"{mirrored.name}: the last batch cannot be read again: {found.error_code.name}")
    for batch in headers(bytes(found.records or b"")):
        _LOG.info("%s: sending offsets %d to %d again", mirrored.name, batch.base_offset, batch.last_offset)
        led.shifts.begin(led.log_end, batch.base_offset)
        return


RESUME: Final[Mapping[Resume, ResumePolicy]] = {Resume.EXACT: exact, Resume.REPLAY: replay}
