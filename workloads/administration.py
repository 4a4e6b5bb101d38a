"""The workload `administration`: what `append` does, and an administrator who changes access rules and configurations.

The administrator (workloads.clients.administrator) does what workloads.admin_plan draws from the seed, on every cluster
of the run: rules that allow readers on the source, rules that deny readers on the destination alone, topic
configurations on the source while it is mirrored; after a failover configurations of the destination's own, and other
ones on the source that was left. It looks at rules and configurations of all clusters between its changes. Access rules
need clusters with an authorizer (`--authorizer`); without, only configurations change.

Clients are super users: no rule binds them, so that the load goes on whatever the rules say. Retention never becomes
shorter than two days: nothing expires by it.

What it cannot show: what `append` cannot; whether brokers enforce the rules; rules of other resources than topics.
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
    """The workload. What the administrator knows over the parts of a run is in the context's `extra`."""

    name = "administration"
    description = "what append does, and an administrator who changes ACLs and topic configurations on every cluster"

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
