"""The workload `groups`: append's producers, and consumer groups that join, commit, and resume on the other cluster.

To append's clients it adds:

- groups that subscribe and commit (workloads.group_roles says which): read_committed and read_uncommitted ones, with
  `auto.offset.reset` latest and earliest, of one and of two members, of the classic and of the new protocol, and a
  share group. After a failover the same group ids resume on the destination, once clients have written there: an offset
  beyond the log's end loses what was written before the group resumes. One group moves there early and works there
  while the mirror still runs; one never leaves its first cluster.
- producers that hold transactions open for seconds, on two partitions in turn, so that at every moment a last stable
  offset is seconds behind its log's end, and a read_uncommitted group commits beyond it.

Every subscription, change of assignment, commit and fetch of offsets is an operation. A member commits what it has
processed twice a second and when it leaves, never while its partitions are revoked; records that the next member then
rereads are a rewind of less than a commit interval.

Not covered: static members, manual assignments that commit, offsets committed in transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from workloads.append import Append
from workloads.base import Endpoint, FinalRead, WorkloadContext
from workloads.clients.consumers import roles
from workloads.clients.control import StopSignal
from workloads.clients.group_members import Member, Place
from workloads.clients.kafka_config import member_config, producer_config, share_config
from workloads.clients.load import Client
from workloads.clients.rate import TokenBucket
from workloads.clients.share_members import ShareMember
from workloads.clients.transactions import TxnClient
from workloads.group_roles import ROLES, GroupRole, stays_of
from workloads.plan import SendPlan
from workloads.values import Names, run_tag

EARLY_S: Final = 2.5
HOLD_S: Final = 6.0
_HOLDERS: Final = 2  # with half a hold between them, one transaction is always at least that old
_WRITTEN_PER_PARTITION: Final = 20
_FIRST: Final = "groups.first"  # key in the context's extra: the cluster of the first load


class Groups(Append):
    """The workload. Stateless: all state of a run is in its context and its load."""

    name = "groups"
    description = (
        "append's producers, transactions held open, and consumer groups that commit and move between clusters"
    )
    mirror_options: Mapping[str, str] = {"group_offsets": "true"}

    def clients(self, context: WorkloadContext, stop: StopSignal) -> dict[str, Client]:
        """Append's clients, the groups' members and the holders."""
        clients = super().clients(context, stop)
        home = next((e.cluster for e in context.endpoints.values() if e.writable), None)
        if home is not None:
            context.extra.setdefault(_FIRST, home)
            for number, name in enumerate(roles(home, "holder", _HOLDERS)):
                clients[name] = self._holder(context, context.endpoints[home], name, number, stop)
        writers = list(clients.values())
        enough = _WRITTEN_PER_PARTITION * context.options.partitions * context.options.topics

        def written() -> bool:
            return sum(writer.tally.acked_records for writer in writers) >= enough

        moved = home is not None and home != context.extra[_FIRST]
        for role in ROLES:
            clients |= self._members(context, role, home, stop, ready=written if moved else None)
        return clients

    def final_reads(self, context: WorkloadContext, *, timeout_s: float) -> Sequence[FinalRead]:
        """As append's, at both isolation levels: the holders write transactions regardless of the producers."""
        options = replace(context.options, producer="transactional", acks="all")
        return super().final_reads(replace(context, options=options), timeout_s=timeout_s)

    def _members(
        self,
        context: WorkloadContext,
        role: GroupRole,
        home: str | None,
        stop: StopSignal,
        *,
        ready: Callable[[], bool] | None,
    ) -> dict[str, Client]:
        others = [cluster for cluster in context.endpoints if cluster != home]
        stays = stays_of(role, home=home, others=others, first=str(context.extra.get(_FIRST)), early_s=EARLY_S)
        if not stays:
            return {}
        group = f"{context.run_id}-{role.name}"
        places = [
            Place(stay=stay, topics=self._names_on(context, context.endpoints[stay.cluster]), ready=ready)
            for stay in stays
        ]
        shared: dict[str, Any] = {
            "group": group,
            "role": role,
            "names": Names.of(context.extra),
            "recorder": context.recorder,
            "stop": stop,
        }
        clients: dict[str, Client] = {}
        for name in roles(stays[0].cluster, role.name, role.members):
            if role.protocol == "share":
                config = partial(share_config, context.endpoints[stays[0].cluster].bootstrap, group=group)
                clients[name] = ShareMember(name=name, place=places[0], config=config, **shared)
            else:
                configs = {s.cluster: self._member_config(context, s.cluster, group, role) for s in stays}
                clients[name] = Member(name=name, places=places, configs=configs, **shared)
        return clients

    @staticmethod
    def _member_config(context: WorkloadContext, cluster: str, group: str, role: GroupRole) -> Any:
        return partial(
            member_config,
            context.endpoints[cluster].bootstrap,
            group=group,
            protocol=role.protocol,
            isolation=role.isolation,
            reset=role.reset,
        )

    def _holder(
        self, context: WorkloadContext, endpoint: Endpoint, role: str, number: int, stop: StopSignal
    ) -> TxnClient:
        options = replace(context.options, producer="transactional", acks="all")
        targets = [(t, p) for t in self._names_on(context, endpoint) for p in range(options.partitions)]
        plan = SendPlan(
            seed=context.seed,
            role=role,
            tag=run_tag(context.run_id),
            targets=[targets[number % len(targets)]],
            max_records=options.max_records,
            value_bytes=options.value_bytes,
            abort_ratio=options.abort_ratio,
        )
        config = partial(
            producer_config, endpoint.bootstrap, options=options, transactional_id=f"{context.run_id}-{role}"
        )
        return TxnClient(
            cluster=endpoint.cluster,
            role=role,
            config=config,
            plan=plan,
            names=Names.of(context.extra),
            recorder=context.recorder,
            bucket=TokenBucket(0, clock=context.clock),
            stop=stop,
            hold_s=HOLD_S,
            wait_s=number * HOLD_S / _HOLDERS,
        )
