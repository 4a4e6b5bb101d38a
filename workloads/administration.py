"""The workload `administration`: `append`, and an administrator who changes ACLs and configurations.

The administrator (workloads.clients.administrator) makes changes that workloads.admin_plan draws from the seed, on
every cluster of the run: ACLs that allow readers on the source, ACLs that deny readers only on the destination, topic
configurations on the source while it is mirrored; after a failover the destination's own configurations, and others on
the source that was left. Between its changes it takes snapshots of ACLs and configurations of all clusters. ACLs need
clusters with an authorizer (`--authorizer`); without, only configurations change.

Clients are super users: ACLs do not bind them, so the load continues whatever the rules are. Retention never becomes
shorter than two days, so nothing expires because of it.

Not covered: what `append` does not cover; whether brokers enforce the rules; rules of resources other than topics.
"""

from __future__ import annotations

from workloads.admin_plan import AdminPlan, situation
from workloads.append import Append
from workloads.base import Endpoint, WorkloadContext
from workloads.clients.administrator import ACTOR, AdministratorClient
from workloads.clients.control import StopSignal
from workloads.clients.load import Client
from workloads.values import Names

_KNOWN, _PLAN, _SOURCE = "administration clusters", "administration plan", "administration source"


class Administration(Append):
    """The workload. The administrator's state across the parts of a run is in the context's `extra`."""

    name = "administration"
    description = "append, and an administrator who changes ACLs and topic configurations on every cluster"

    def clients(self, context: WorkloadContext, stop: StopSignal) -> dict[str, Client]:
        """Append's clients, and the administrator."""
        return {**super().clients(context, stop), ACTOR: self._administrator(context, stop)}

    def _administrator(self, context: WorkloadContext, stop: StopSignal) -> AdministratorClient:
        known: dict[str, Endpoint] = context.extra.setdefault(_KNOWN, {})
        known.update(context.endpoints)
        writable = [letter for letter, endpoint in context.endpoints.items() if endpoint.writable]
        source = context.extra.setdefault(_SOURCE, writable[0] if writable else next(iter(known)))
        plan = context.extra.get(_PLAN)
        if plan is None:
            topics = [spec.name for spec in self.topics(context.options)]
            plan = AdminPlan(seed=context.seed, topics=topics, authorizer=context.options.authorizer)
            context.extra[_PLAN] = plan
        where = situation(source, known, {letter: e.writable for letter, e in context.endpoints.items()})
        return AdministratorClient(
            process=Names.of(context.extra).process(ACTOR),
            clusters=known,
            acts=plan.acts(where),
            recorder=context.recorder,
            stop=stop,
        )
