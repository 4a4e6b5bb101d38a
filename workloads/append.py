"""The workload `append`: producers append unique records to random partitions, consumers read them on every cluster.

Producers run on every writable endpoint, by option `producer`:

- `plain`: acks as chosen, retries, no idempotence: the broker may append a retried record twice and out of order.
- `idempotent`: the same with producer id and sequence.
- `transactional`: one transaction at a time per producer, some aborted on purpose (workloads.clients.transactions).

A *process* is one logical, single-threaded actor with at most one pending operation (`p3`; after an `info` it is
replaced by `p3.1`). A *client* is one incarnation of a confluent-kafka object (`A-producer-0#2`). One plain or
idempotent producer serves `processes` processes, a transactional or short-lived one serves one (`client_life`: number
of operations after which a new client replaces it, transactional ones under another transactional.id, as jobs and
lambdas do). `txn_hold` keeps transactions open, as stream processors do. Values identify their sender
(workloads.values). How operations end: workloads.clients.sends and workloads.clients.transactions; which errors are
definite: workloads.clients.error_table; consumers: workloads.clients.consumers; the end of the run:
workloads.final_reads.

Not covered: groups (no consumer joins one), compaction and keys (keys are process names), and messages with headers or
null values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from harness.core.errors import UsageError
from workloads.base import Endpoint, FinalRead, Floor, TopicSpec, WorkloadContext, WorkloadOptions
from workloads.clients.consumers import ConsumerClient, roles
from workloads.clients.control import StopSignal
from workloads.clients.kafka_config import consumer_config, producer_config
from workloads.clients.load import Client, ThreadedLoad
from workloads.clients.producers import SendClient
from workloads.clients.rate import TokenBucket
from workloads.clients.transactions import TxnClient
from workloads.final_reads import read_everything
from workloads.plan import SendPlan
from workloads.values import Names, run_tag

_UNLIMITED: Final = 400.0  # operations a second that the floor assumes when the rate is not limited
_TXN_PER_PRODUCER: Final = 5.0  # transactions a second one producer manages on a slow machine
_LIVES_PER_PRODUCER: Final = 3.0  # incarnations a second, likewise
_FLOOR_SHARE: Final = 0.1


def check_options(options: WorkloadOptions) -> None:
    """Raise UsageError, naming the option, for an invalid value."""
    least = {"topics": 1, "partitions": 1, "replication": 1, "producers": 1, "processes": 1, "max_records": 1}
    least |= {"consumers": 0, "value_bytes": 0, "client_life": 0, "txn_hold": 0}
    for name, minimum in least.items():
        value = getattr(options, name)
        if value < minimum:
            raise UsageError(f"workload option {name} is {value}; it must be at least {minimum}")
    if options.rate < 0:
        raise UsageError(f"workload option rate is {options.rate:g}; give operations per second, or 0 for no limit")
    if not 0 <= options.abort_ratio <= 1:
        raise UsageError(f"workload option abort_ratio is {options.abort_ratio:g}; it must be between 0 and 1")
    choices = {
        "producer": ("plain", "idempotent", "transactional"),
        "isolation": ("read_uncommitted", "read_committed"),
        "acks": ("all", "1"),
    }
    for name, known in choices.items():
        if getattr(options, name) not in known:
            raise UsageError(f"workload option {name} is {getattr(options, name)!r}; choose {', '.join(known)}")
    if options.acks != "all" and options.producer != "plain":
        raise UsageError(
            f"producer {options.producer} needs acks=all; acks={options.acks} goes with producer=plain only"
        )


class Append:
    """The workload. Stateless: all state of a run is in its context and its load."""

    name = "append"
    description = "unique records to random partitions (plain, idempotent or transactional), read on every cluster"

    def topics(self, options: WorkloadOptions) -> Sequence[TopicSpec]:
        """`append-0`, `append-1`, …; min.insync.replicas one below the replication unless topic_config says else."""
        check_options(options)
        config = {"min.insync.replicas": str(max(1, options.replication - 1)), **options.topic_config}
        return [
            TopicSpec(name=f"append-{n}", partitions=options.partitions, replication=options.replication, config=config)
            for n in range(options.topics)
        ]

    def floor(self, options: WorkloadOptions, *, time_limit_s: float) -> Floor:
        """A tenth of the operations of the rate, and a few polls: what a slow machine under faults achieves.

        Sends: 10 % of rate × time (rate 0 counts as 400/s; transactions as at most 5/s per producer, and one per hold;
        operations of short-lived clients as three incarnations a second).
        Polls with records: one per five seconds. Records read on the destination: half as many as sends.
        Mirrored under each fault: a tenth of a second's records; under all faults: half of the partitions.
        """
        check_options(options)
        rate = min(options.rate or _UNLIMITED, _UNLIMITED)
        if options.producer == "transactional":
            each = 1 / max(1 / _TXN_PER_PRODUCER, options.txn_hold)
            rate = min(rate, each * options.producers)
        if options.client_life:
            rate = min(rate, _LIVES_PER_PRODUCER * options.client_life * options.producers)
        sends = max(1, int(rate * time_limit_s * _FLOOR_SHARE))
        reads = options.consumers > 0
        return Floor(
            ok_sends=sends,
            ok_polls=max(1, int(time_limit_s / 5)) if reads else 0,
            polled_records_on_destination=max(1, sends // 2) if reads else 0,
            carried_under_fault=max(1, int(rate * _FLOOR_SHARE)),
            partitions_under_faults=max(1, options.topics * options.partitions // 2),
        )

    def start(self, context: WorkloadContext) -> ThreadedLoad:
        """Start producers on every writable endpoint and consumers on every endpoint; returns at once.

        Raises UsageError for invalid options.
        """
        stop = StopSignal()
        return ThreadedLoad(self.clients(context, stop), stop)

    def clients(self, context: WorkloadContext, stop: StopSignal) -> dict[str, Client]:
        """The clients of `start`, by their roles; for workloads that add others to them.

        Raises UsageError for invalid options.
        """
        check_options(context.options)
        bucket = TokenBucket(context.options.rate, clock=context.clock)
        clients: dict[str, Client] = {}
        for endpoint in context.endpoints.values():
            for role in roles(endpoint.cluster, "producer", context.options.producers if endpoint.writable else 0):
                clients[role] = self._producer(context, endpoint, role, bucket, stop)
            for member, role in enumerate(roles(endpoint.cluster, "consumer", context.options.consumers)):
                clients[role] = self._consumer(context, endpoint, role, member, stop)
        return clients

    def final_reads(self, context: WorkloadContext, *, timeout_s: float) -> Sequence[FinalRead]:
        """See workloads.final_reads. One row per cluster, partition and isolation level."""
        return read_everything(context, [spec.name for spec in self.topics(context.options)], timeout_s=timeout_s)

    def _names_on(self, context: WorkloadContext, endpoint: Endpoint) -> list[str]:
        return [endpoint.topic_names.get(spec.name, spec.name) for spec in self.topics(context.options)]

    def _producer(
        self, context: WorkloadContext, endpoint: Endpoint, role: str, bucket: TokenBucket, stop: StopSignal
    ) -> Client:
        options, names = context.options, Names.of(context.extra)
        transactional = options.producer == "transactional"
        processes = 1 if transactional or options.client_life else options.processes
        plan = SendPlan(
            seed=context.seed,
            role=role,
            tag=run_tag(context.run_id),
            targets=[(t, p) for t in self._names_on(context, endpoint) for p in range(options.partitions)],
            max_records=options.max_records,
            value_bytes=options.value_bytes,
            abort_ratio=options.abort_ratio,
            processes=processes,
        )
        shared: dict[str, Any] = {
            "cluster": endpoint.cluster,
            "role": role,
            "plan": plan,
            "names": names,
            "recorder": context.recorder,
            "bucket": bucket,
            "stop": stop,
            "life": options.client_life,
        }
        if transactional:

            def config(client: str) -> dict[str, Any]:
                name = f"{context.run_id}-{client if options.client_life else role}"
                return producer_config(endpoint.bootstrap, client, options, transactional_id=name)

            return TxnClient(config=config, hold_s=options.txn_hold, **shared)
        plain = partial(producer_config, endpoint.bootstrap, options=options)
        return SendClient(config=plain, processes=processes, **shared)

    def _consumer(
        self, context: WorkloadContext, endpoint: Endpoint, role: str, member: int, stop: StopSignal
    ) -> Client:
        options = context.options

        def config(client: str) -> dict[str, Any]:
            group = f"{context.run_id}-{role}"
            return consumer_config(endpoint.bootstrap, client, group=group, isolation=options.isolation)

        return ConsumerClient(
            cluster=endpoint.cluster,
            role=role,
            topics=self._names_on(context, endpoint),
            per_topic=options.partitions,
            member=member,
            members=options.consumers,
            isolation=options.isolation,
            config=config,
            names=Names.of(context.extra),
            recorder=context.recorder,
            stop=stop,
        )
