"""Which transactions of the source are not decided yet, according to its coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.describe_transactions.v0 import request as describe
from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v0 import request as listing
from kio.schema.types import TransactionalId

from harness.wire.cluster import Cluster
from harness.wire.frames import WireError
from mirrors.reference.server.settings import FIRST_MIRROR_ID

_UNDECIDED: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
_GONE: Final = frozenset({ErrorCode.transactional_id_not_found, ErrorCode.not_coordinator})


@dataclass(frozen=True, slots=True)
class Undecided:
    """One transaction that has begun, and whose markers are not all written. started: as its coordinator reports it, to
    tell it from a later one of the same client."""

    transactional_id: str
    producer_id: int
    started: str


async def undecided(cluster: Cluster, topics: Collection[str]) -> frozenset[Undecided]:
    """Those with records in these topics. Raises WireError when a coordinator does not answer."""
    brokers = (await cluster.metadata(())).brokers
    real = [broker for broker in brokers if broker < FIRST_MIRROR_ID]
    found = await asyncio.gather(*(_of(cluster, broker, topics) for broker in real))
    return frozenset().union(*found)


async def _of(cluster: Cluster, broker: int, topics: Collection[str]) -> set[Undecided]:
    answer = await cluster.call_broker(broker, listing.ListTransactionsRequest(state_filters=_UNDECIDED))
    if answer.error_code is not ErrorCode.none:
        raise WireError(f"transactions at broker {broker}: {answer.error_code.name}")
    ids = tuple(TransactionalId(one.transactional_id) for one in answer.transaction_states)
    if not ids:
        return set()
    answer = await cluster.call_broker(broker, describe.DescribeTransactionsRequest(transactional_ids=ids))
    found = set()
    for one in answer.transaction_states:
        if one.error_code in _GONE:
            continue
        if one.error_code is not ErrorCode.none:
            raise WireError(f"transaction {one.transactional_id} at broker {broker}: {one.error_code.name}")
        if one.transaction_state in _UNDECIDED and _touches(one, topics):
            found.add(Undecided(str(one.transactional_id), int(one.producer_id), str(one.transaction_start_time)))
    return found


def _touches(one: Any, topics: Collection[str]) -> bool:
    return any(str(part.topic) in topics for part in one.topics)
