"""MirrorMaker 2's configuration in dedicated mode, as pure text: options → properties.

Settings differ from MM2's defaults in two ways only, both meant for tests that last minutes:
- refreshes, flushes and group rebalances are short, so that a new topic or a restart does not take ten minutes;
- time-outs of single requests are short, so that a connection whose packets are dropped is given up in seconds. No
  limit on retries as a whole is lowered (delivery, transactions): a fault must not make MM2 give up earlier than it
  would in production.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from harness.core.errors import UsageError

CONTRACTS: Final = ("mm2-at-least-once", "mm2-read-committed", "mm2-exactly-once")
IDENTITY_POLICY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
REST_PORT: Final = 8083
_BOOLEANS: Final = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
_HEARTBEATS: Final = "heartbeats"
_NOT_A_USERS: Final = re.compile(r"(__|\.).*")
_OWN_TOPICS: Final = re.compile(r"mm2.*\.internal|.*\.checkpoints\.internal")
_EXCLUDED_BY_DEFAULT: Final = re.compile(r".*\.replica")


@dataclass(frozen=True, kw_only=True)
class Mm2Options:
    """Options for the user. extra: raw MM2 properties, which override everything generated."""

    read_committed: bool
    exactly_once: bool
    identity_names: bool = field(default=True, metadata={"doc": "mirrored topics keep their names (else A.topic)"})
    group_offsets: bool = field(default=False, metadata={"doc": "sync consumer group offsets"})
    config_sync: bool = field(default=True, metadata={"doc": "sync topic configurations"})
    tasks_max: int = field(default=0, metadata={"doc": "tasks of the source connector (0: 2, or one per process)"})
    refresh_seconds: int = field(default=5, metadata={"doc": "how often topics, groups and configs are refreshed"})
    flush_ms: int = field(default=1000, metadata={"doc": "how often source offsets are flushed (at-least-once)"})
    request_timeout_ms: int = field(default=6000, metadata={"doc": "time-out of one request on either link"})
    extra: Mapping[str, str] = field(default_factory=dict)


_CHOSEN: Final = tuple(f for f in fields(Mm2Options) if "doc" in f.metadata)


def option_docs() -> Mapping[str, str]:
    """Name of each `--mirror-option` → what it does and its default."""
    docs = {f.name: f"{f.metadata['doc']}; default {str(f.default).lower()}" for f in _CHOSEN}
    docs["A.KEY, B.KEY, A->B.KEY"] = "any property of MM2's own file, e.g. B.producer.linger.ms=5"
    return docs


def base_contract(contract: str) -> str:
    """`mm2-at-least-once+unclean` → `mm2-at-least-once`: what the mirror itself is configured for."""
    return contract.split("+", 1)[0]


def parse_options(contract: str, options: Mapping[str, str]) -> Mm2Options:
    """Validate `--mirror-option NAME=VALUE` pairs for one contract.

    Raises: UsageError with one sentence that names the option and the fix.
    """
    base = base_contract(contract)
    if base not in CONTRACTS:
        raise UsageError(f"mirror mm2 cannot keep contract {contract!r}; choose one of {', '.join(CONTRACTS)}")
    known = {f.name: f for f in _CHOSEN}
    values: dict[str, bool | int] = {}
    extra: dict[str, str] = {}
    for raw, text in options.items():
        name = raw.replace("-", "_")
        if name in known:
            values[name] = _value(raw, text, of=known[name].default)
        elif "." in raw:
            extra[raw] = _raw(raw, text)
        else:
            names = ", ".join(known)
            raise UsageError(f"mirror mm2 has no option {raw!r}; known: {names}, or a raw property A.KEY=VALUE")
    read_committed = base != "mm2-at-least-once"
    return Mm2Options(read_committed=read_committed, exactly_once=base == "mm2-exactly-once", extra=extra, **values)  # type: ignore[arg-type]


def _value(name: str, text: str, *, of: object) -> bool | int:
    if isinstance(of, bool):
        if text.strip().lower() not in _BOOLEANS:
            raise UsageError(f"mirror option {name} is {text!r}; give true or false")
        return _BOOLEANS[text.strip().lower()]
    if not text.strip().isdigit():
        raise UsageError(f"mirror option {name} is {text!r}; give a whole number that is not negative")
    return int(text)


def _raw(name: str, text: str) -> str:
    if name.endswith("bootstrap.servers"):
        raise UsageError(f"mirror option {name} would make the mirror bypass the proxies; leave it out")
    if "replication.policy" in name:
        raise UsageError(f"mirror option {name} would hide the topics' names; use identity_names=true or false")
    return text


def check_aliases(options: Mm2Options, *, aliases: Sequence[str], flows: Sequence[str]) -> None:
    """Refuse raw properties that no MM2 of the test would read: of a cluster or a flow that it does not have.

    aliases: the clusters' letters. flows: `A->B`. Raises: UsageError naming the option and the fix.
    """
    prefixes = [*aliases, *flows]
    for name in options.extra:
        alias, _, key = name.partition(".")
        if alias not in prefixes or not key.strip():
            raise UsageError(
                f"mirror option {name!r} begins with {alias!r}, which is not an alias of this test; begin it with "
                + ", ".join(f"{prefix}." for prefix in prefixes)
            )


def check_topics(topics: Sequence[str], options: Mm2Options, *, source: str, destination: str) -> None:
    """Refuse topics that MM2 would silently skip or rename, by the rules of its own replication policies: nobody can
    configure these (ReplicationPolicy.isInternalTopic and IdentityReplicationPolicy of Kafka 4.3). Releases without
    KAFKA-17200 skip all topics that end in `.internal` or `-internal`, too.

    Raises: UsageError naming the topic.
    """
    for topic in topics:
        why = _never_mirrored(topic, options)
        if why is not None:
            raise UsageError(f"MirrorMaker 2 never mirrors a topic called {topic!r}: {why}; rename it")
        if not options.identity_names and topic.startswith((f"{destination}.", f"{source}.")):
            raise UsageError(f"topic {topic!r} would look mirrored already under MM2's default names; rename it")


def _never_mirrored(topic: str, options: Mm2Options) -> str | None:
    """Why MM2 does not mirror a topic under its own name, whatever its configuration; None when it does."""
    if _NOT_A_USERS.fullmatch(topic):
        return "it takes every topic that begins with __ or with a dot for an internal one of Kafka"
    if _OWN_TOPICS.fullmatch(topic):
        return "it takes it for an internal one of its own"
    if topic == _HEARTBEATS or (options.identity_names and topic.endswith(_HEARTBEATS)):
        return "it takes it for its heartbeats, and renames it"
    return None


def remote_name(topic: str, options: Mm2Options, *, source: str) -> str:
    """The mirrored topic's name on the destination."""
    return topic if options.identity_names else f"{source}.{topic}"


def mm2_properties(
    options: Mm2Options,
    topics: Sequence[str],
    *,
    source: str,
    destination: str,
    source_bootstrap: str,
    destination_bootstrap: str,
    source_brokers: int,
    destination_brokers: int,
    mirror_nodes: int,
    rest_host: str,
) -> dict[str, str]:
    """All properties of one MM2 process.

    source, destination: cluster letters, used as MM2's aliases. The bootstraps are the links'. rest_host: this
    process's own address, by which the other processes reach its internal REST server.
    """
    replicas_a, replicas_b = str(min(3, source_brokers)), str(min(3, destination_brokers))
    properties = {
        "clusters": f"{source},{destination}",
        f"{source}.bootstrap.servers": source_bootstrap,
        f"{destination}.bootstrap.servers": destination_bootstrap,
        # Without this a second herder, B->A, is started only to emit heartbeats.
        "emit.heartbeats.enabled": "false",
        # The processes of one MM2 forward task configurations to each other by REST; exactly-once needs it even alone.
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://{rest_host}:{REST_PORT}",
        "rest.advertised.host.name": rest_host,
    }
    flow, tasks = f"{source}->{destination}", options.tasks_max or max(2, mirror_nodes)
    properties |= _flow(flow, options, topics, tasks=tasks, replicas=replicas_b)
    if options.group_offsets:  # MM2 refuses settings of a feature that is off
        properties |= _group_offsets(flow, options, source_replicas=replicas_a, destination_replicas=replicas_b)
    if options.identity_names:
        properties["replication.policy.class"] = IDENTITY_POLICY
    properties |= _source_clients(source, options) | _workers(destination, options, replicas=replicas_b)
    return properties | dict(options.extra)


def _flow(flow: str, options: Mm2Options, topics: Sequence[str], *, tasks: int, replicas: str) -> dict[str, str]:
    """What is mirrored, and how often its topics and their configurations are looked up."""
    properties = {
        f"{flow}.enabled": "true",
        f"{flow}.topics": ",".join(_literal(topic) for topic in topics),
        f"{flow}.tasks.max": str(tasks),
        f"{flow}.replication.factor": replicas,
        f"{flow}.heartbeats.topic.replication.factor": replicas,
        f"{flow}.emit.heartbeats.enabled": "false",
        f"{flow}.refresh.topics.interval.seconds": _refresh_seconds(options),
        f"{flow}.sync.topic.configs.enabled": _flag(options.config_sync),
        f"{flow}.sync.topic.configs.interval.seconds": _refresh_seconds(options),
        f"{flow}.sync.topic.acls.enabled": "false",
        f"{flow}.emit.checkpoints.enabled": _flag(options.group_offsets),
        f"{flow}.emit.offset-syncs.enabled": _flag(options.group_offsets),
        f"{flow}.sync.group.offsets.enabled": _flag(options.group_offsets),
    }
    if any(_EXCLUDED_BY_DEFAULT.fullmatch(topic) for topic in topics):
        properties[f"{flow}.topics.exclude"] = _OWN_TOPICS.pattern
    return properties


def _group_offsets(
    flow: str, options: Mm2Options, *, source_replicas: str, destination_replicas: str
) -> dict[str, str]:
    return {
        f"{flow}.offset-syncs.topic.replication.factor": source_replicas,
        f"{flow}.checkpoints.topic.replication.factor": destination_replicas,
        f"{flow}.groups": ".*",
        f"{flow}.refresh.groups.interval.seconds": _refresh_seconds(options),
        f"{flow}.emit.checkpoints.interval.seconds": "1",
        f"{flow}.sync.group.offsets.interval.seconds": "1",
        f"{flow}.offset.lag.max": "0",
    }


def _refresh_seconds(options: Mm2Options) -> str:
    return str(max(1, options.refresh_seconds))


def _source_clients(a: str, options: Mm2Options) -> dict[str, str]:
    properties = _patience(a, options)
    properties[f"{a}.consumer.auto.offset.reset"] = "earliest"
    properties[f"{a}.consumer.isolation.level"] = "read_committed" if options.read_committed else "read_uncommitted"
    return properties


def _workers(b: str, options: Mm2Options, *, replicas: str) -> dict[str, str]:
    properties = _patience(b, options) | {
        f"{b}.producer.acks": "all",
        f"{b}.producer.request.timeout.ms": str(options.request_timeout_ms),
        f"{b}.producer.metadata.max.age.ms": "10000",
        f"{b}.offset.flush.interval.ms": str(options.flush_ms),
        f"{b}.offset.storage.replication.factor": replicas,
        f"{b}.offset.storage.partitions": "5",
        f"{b}.status.storage.replication.factor": replicas,
        f"{b}.status.storage.partitions": "1",
        f"{b}.config.storage.replication.factor": replicas,
        # A killed process is removed from its group after this, and its tasks move at once (default: 5 minutes).
        f"{b}.session.timeout.ms": "6000",
        f"{b}.heartbeat.interval.ms": "2000",
        f"{b}.scheduled.rebalance.max.delay.ms": "1000",
    }
    if options.exactly_once:
        properties[f"{b}.exactly.once.source.support"] = "enabled"
    return properties


def _patience(cluster: str, options: Mm2Options) -> dict[str, str]:
    """How soon a client of this cluster gives up one request or connection and tries again."""
    return {
        f"{cluster}.request.timeout.ms": str(options.request_timeout_ms),
        f"{cluster}.socket.connection.setup.timeout.ms": "3000",
        f"{cluster}.socket.connection.setup.timeout.max.ms": "6000",
        f"{cluster}.reconnect.backoff.max.ms": "1000",
        f"{cluster}.metadata.max.age.ms": "10000",
    }


def render(properties: Mapping[str, str]) -> str:
    """A Java properties file, one key a line, sorted; backslashes, blanks at the start and line ends are escaped."""
    return "".join(f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in sorted(properties.items()))


def _escape(text: str, *, key: bool = False) -> str:
    out = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if key:
        return re.sub(r"([ =:#!])", r"\\\1", out)
    return "\\" + out if out.startswith(" ") else out


def _literal(topic: str) -> str:
    """A regular expression that matches this topic only (names hold letters, digits, '.', '_', '-')."""
    return topic.replace(".", "[.]")


def _flag(value: bool) -> str:
    return "true" if value else "false"
