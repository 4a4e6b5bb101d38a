"""One test: mirror × scenario × workload × nemeses × contract × seed, validated before anything starts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harness.core.bounds import shown
from harness.core.errors import UsageError
from harness.core.hints import closest

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
MOST_PER_SECOND = 1_000_000
LARGEST_SEED = 2**63 - 1

Whole = Annotated[int, Field(strict=True)]
"""A whole number: not `true`, not text."""
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite number: not `true`, not text."""
Flag = Annotated[bool, Field(strict=True)]


def _config_text(value: object) -> object:
    """A configuration's value as Kafka writes it: TOML's true, 5 and 0.5 are text there."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


ConfigText = Annotated[str, BeforeValidator(_config_text)]
"""The value of a Kafka configuration: text, a number or true and false."""
_CLUSTER_KEY = re.compile(r"(?:([A-Z]):)?([A-Za-z0-9_.-]+)")
"""A broker's configuration key, for one cluster (`B:log.segment.bytes`) or for all."""
_OWN_OPTIONS = {"min.insync.replicas": "min-insync-replicas", "cleanup.policy": "cleanup-policy"}


class TestSpec(BaseModel):
    """Parameters of a test: the one place where an option is declared. TOML keys and `shatter run` options have these
    names, with dashes, these defaults and these descriptions.
    """

    __test__ = False  # not a test case of pytest

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: str = Field(default="run", description="name of the run")
    mirror: str = Field(default="mm2", description="mirror under test")
    scenario: str = Field(default="steady", description="order of phases")
    workload: str = Field(default="append", description="what the clients do")
    nemesis: tuple[str, ...] = Field(
        default=(), description="faults to inject, with commas: link-partition,broker-pause"
    )
    contract: str | None = Field(default=None, description="what the mirror promises; default: the mirror's own")
    seed: Whole = Field(default=0, ge=0, le=LARGEST_SEED, description="draws the load and the fault schedule")
    time_limit: Number = Field(default=30.0, gt=0, le=86_400, description="seconds of load under faults")
    settle_limit: Number = Field(
        default=90.0, gt=0, le=86_400, description="longest wait for the mirror to catch up, in seconds"
    )
    final_limit: Number = Field(
        default=60.0, gt=0, le=86_400, description="longest time for the final reads, in seconds"
    )
    brokers: Whole = Field(default=3, ge=1, le=9, description="brokers of each cluster")
    controllers: Whole = Field(default=0, ge=0, le=5, description="separate controllers of each cluster; 0: combined")
    topics: Whole = Field(default=2, ge=1, le=100, description="topics of the workload")
    partitions: Whole = Field(default=4, ge=1, le=1000, description="partitions of each topic")
    rate: Number = Field(
        default=400.0, ge=0, le=MOST_PER_SECOND, description="operations per second; 0: as fast as it goes"
    )
    producer: Literal["plain", "idempotent", "transactional"] = Field(
        default="idempotent", description="plain, idempotent or transactional"
    )
    producers: Whole = Field(default=2, ge=1, le=64, description="producer clients")
    consumers: Whole = Field(default=2, ge=1, le=64, description="consumer clients on each cluster")
    max_records: Whole = Field(default=4, ge=1, le=1000, description="records of one send: 1 to this many")
    client_life: Whole = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="operations of one producer client, as of a job or a lambda; 0: it stays",
    )
    txn_hold: Number = Field(
        default=0.0, ge=0, le=10, description="seconds that transactions stay open, as a stream processor's"
    )
    isolation: Literal["read_uncommitted", "read_committed"] = Field(
        default="read_committed", description="of the consumers: read_committed or read_uncommitted"
    )
    acks: Literal["all", "1"] = Field(default="all", description="all or 1")
    min_insync_replicas: Whole | None = Field(
        default=None, ge=1, le=9, description="of the workload's topics; default: a majority"
    )
    value_bytes: Whole = Field(default=0, ge=0, le=1_000_000, description="pad values to this size")
    mirror_nodes: Whole = Field(default=1, ge=1, le=8, description="processes of the mirror")
    design: tuple[str, ...] = Field(
        default=(), description="PRESET or SWITCH=VALUE of the reference mirror, repeatable; the later wins"
    )
    mirror_options: Mapping[str, str] = Field(default_factory=dict, description="KEY=VALUE for the mirror, repeatable")
    kafka_image: str | None = Field(
        default=None,
        description="brokers and MirrorMaker 2: an image, e.g. apache/kafka:4.3.1, or a version that is built here: "
        "4.4.0",
    )
    source_image: str | None = Field(
        default=None, description="another image, as --kafka-image takes it, for the brokers of A: an old source"
    )
    destination_image: str | None = Field(
        default=None, description="the same for the brokers of the other clusters: a new destination"
    )
    broker_config: Mapping[str, ConfigText] = Field(
        default_factory=dict, description="[A:|B:]KEY=VALUE of all brokers, or of one cluster's, repeatable"
    )
    topic_config: Mapping[str, ConfigText] = Field(
        default_factory=dict, description="KEY=VALUE of the workload's topics, repeatable"
    )
    format_feature: Mapping[str, ConfigText] = Field(
        default_factory=dict, description="NAME=LEVEL of a feature that the clusters are formatted with, repeatable"
    )
    authorizer: Flag = Field(default=False, description="clusters with an authorizer, so that ACLs can be created")
    cleanup_policy: Literal["delete", "compact"] = Field(
        default="delete", description="of the workload's topics: delete, or compact with a busy cleaner"
    )

    @property
    def replication(self) -> int:
        """Replicas of each partition of the workload's topics."""
        return min(3, self.brokers)

    @property
    def min_isr(self) -> int:
        """min.insync.replicas of the workload's topics: as chosen, else a majority of the replicas."""
        return self.min_insync_replicas or (self.replication // 2 + 1)

    def check_combination(self) -> None:
        """Refuse impossible combinations before anything starts.

        Raises: UsageError naming the option and how to fix it.
        """
        if not NAME.fullmatch(self.name):
            raise UsageError(
                f"test name {self.name!r} must be 1 to 63 of a-z, 0-9, '.', '_', '-', and begin with a letter or digit"
            )
        if self.min_isr > self.replication:
            raise UsageError(
                f"min-insync-replicas {self.min_isr} is more than the {self.replication} replicas that "
                f"{self.brokers} brokers give; raise --brokers or lower --min-insync-replicas"
            )
        if self.producer != "plain" and self.acks != "all":
            raise UsageError(f"a {self.producer} producer needs acks=all; use --acks all or --producer plain")
        if self.controllers and self.controllers % 2 == 0:
            raise UsageError(f"controllers {self.controllers} is even; a quorum needs 1, 3 or 5 (0: combined mode)")
        for key in self.topic_config:
            if key in _OWN_OPTIONS:
                raise UsageError(f"topic-config {key}: this has an option of its own; use --{_OWN_OPTIONS[key]}")
        for key in self.broker_config:
            if not _CLUSTER_KEY.fullmatch(key):
                raise UsageError(
                    f"broker-config {key!r} is not a key such as log.segment.bytes, or B:log.segment.bytes for B"
                )
        for feature, level in self.format_feature.items():
            if not re.fullmatch(r"[a-z][a-z0-9.]*", feature) or not re.fullmatch(r"\d+|\d+\.\d+(-IV\d+)?", level):
                raise UsageError(
                    f"format-feature {feature}={level} is not a feature and its level, such as transaction.version=2"
                )

    def broker_settings(self) -> Mapping[str | None, Mapping[str, str]]:
        """The broker configuration that was chosen: cluster (None: every one) → key → value."""
        found: dict[str | None, dict[str, str]] = {}
        for text, value in self.broker_config.items():
            if match := _CLUSTER_KEY.fullmatch(text):
                found.setdefault(match[1], {})[match[2]] = value
        return found

    def broker_config_of(self, cluster: str) -> dict[str, str]:
        """The same for one cluster; a key for it alone overrides one for all."""
        chosen = self.broker_settings()
        return {**chosen.get(None, {}), **chosen.get(cluster, {})}


_NEVER_EMPTY = frozenset(
    {"name", "mirror", "scenario", "workload", "contract", "kafka_image", "source_image", "destination_image"}
)


def check_name(kind: str, name: str, registry: Iterable[str]) -> None:
    """Raises UsageError when `name` is in no registry, with the nearest right ones."""
    names = list(registry)
    if name not in names:
        raise UsageError(f"no {kind} is called {name!r}; {closest(name, names)}")


def parse_spec(values: Mapping[str, Any], *, where: str) -> TestSpec:
    """Validate keys (with dashes or underscores) and values.

    Raises: UsageError with one sentence that names the place, the key and how to fix it.
    """
    plain: dict[str, Any] = {}
    for key, value in values.items():
        field = key.replace("-", "_")
        if field not in TestSpec.model_fields:
            known = [name.replace("_", "-") for name in TestSpec.model_fields]
            raise UsageError(f"{where}: unknown key {key!r}; {closest(key, known)}")
        if field in plain:
            raise UsageError(f"{where}: key {key!r} appears twice, with '-' and with '_'; leave one out")
        if field in _NEVER_EMPTY and isinstance(value, str) and not value.strip():
            raise UsageError(f"{where}: key {field.replace('_', '-')!r} is empty; give it a value, or leave it out")
        plain[field] = value
    if isinstance(plain.get("nemesis"), str):
        plain["nemesis"] = tuple(part.strip() for part in plain["nemesis"].split(",") if part.strip())
    if isinstance(plain.get("design"), str):
        plain["design"] = tuple(plain["design"].split())
    try:
        spec = TestSpec.model_validate(plain)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part).replace("_", "-") for part in first["loc"])
        raise UsageError(f"{where}: key {key!r} is {shown(first.get('input'))}: {first['msg'].lower()}") from error
    spec.check_combination()
    return spec
