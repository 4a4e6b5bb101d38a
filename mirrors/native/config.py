"""Options of mirror `native`, and what the clusters need for it: broker configurations and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.core.errors import UsageError
from harness.wire.cluster_mirror_api import LEVEL_FEATURE
from harness.wire.cluster_mirror_names import names_of
from mirrors import options as mirror_options
from mirrors.native.filters import UNCLEAN
from mirrors.options import option
from mirrors.site import MirrorSettings

CONTRACTS: Final = tuple(
    f"cluster-mirror/{revision}" for revision in ("kip-2026-07", "strict", "kip-2026-05", "kip-2026-03", "kip-2026-02")
)
FORMAT_FEATURES: Final[Mapping[str, str]] = {LEVEL_FEATURE: "1"}
CLASS_OF_BUILD: Final = "org/apache/kafka/common/requests/CreateClusterMirrorRequest"
"""A class that Kafka's client library has where the brokers have Cluster Mirroring."""

_BOOLEANS: Final = ("true", "false")


@dataclass(frozen=True, kw_only=True)
class NativeOptions:
    """Options for the user, as `--mirror-option NAME=VALUE`."""

    refresh_ms: int = option(2000, "period in ms in which brokers sync groups, configurations, ACLs and new partitions")
    state_partitions: int = option(6, "partitions of the mirrors' state topic")
    groups: str = option(".*", "regular expression, without commas, of the groups whose offsets are synced")
    exclude_groups: str = option("", "regular expression, without commas, of groups that are left out")
    acls: str = option("*", "rules of the ACLs that are synced, as the build writes them: TYPE;NAME;OPERATION;…")
    exclude_configs: str = option("", "topic configurations that are not synced, comma-separated; none: the build's")
    unclean: str = option("true", "true or false: follow unclean elections on the source")


def option_docs() -> Mapping[str, str]:
    """Name of each `--mirror-option` → what it does and its default."""
    return mirror_options.option_docs(NativeOptions)


def parse_options(given: Mapping[str, str]) -> NativeOptions:
    """Validate `NAME=VALUE` pairs. Raises: UsageError naming the option and the fix."""
    parsed = mirror_options.parse_options("native", NativeOptions, given)
    if parsed.unclean not in _BOOLEANS:
        raise UsageError(f"mirror option unclean is {parsed.unclean!r}; it must be true or false")
    for name in ("groups", "exclude_groups"):
        if "," in getattr(parsed, name):
            raise UsageError(
                f"mirror option {name} is {getattr(parsed, name)!r}: brokers split it at its commas; write one|other"
            )
    return parsed


def check(settings: MirrorSettings, _topics: Sequence[str]) -> None:
    """Raises: UsageError for what this mirror does not have."""
    parse_options(settings.options)
    if settings.mirror_nodes != 1:
        raise UsageError("mirror native runs within the brokers and has no processes; leave --mirror-nodes out")


def broker_config(brokers: int, given: Mapping[str, str]) -> dict[str, str]:
    """Configuration of every node of a cluster with so many brokers. given: the mirror's options.

    Brokers ignore names that they do not have, so every name that a build may have is set.
    """
    chosen = parse_options(given)
    wanted = {
        "mirror.metadata.refresh.interval.ms": str(chosen.refresh_ms),
        "mirror.state.topic.num.partitions": str(chosen.state_partitions),
        "mirror.state.topic.replication.factor": str(min(3, brokers)),
    }
    named = {alias: value for name, value in wanted.items() for alias in names_of(name)}
    return {"unstable.api.versions.enable": "true", "unstable.feature.versions.enable": "true", **named}


def mirror_settings(chosen: NativeOptions) -> dict[str, str]:
    """What the filters of the mirror itself have to be, by the names of harness.wire.cluster_mirror_names."""
    wanted = {
        "mirror.groups.include": chosen.groups,
        "mirror.groups.exclude": chosen.exclude_groups,
        "mirror.acl.include": chosen.acls,
        UNCLEAN: chosen.unclean,
    }
    return wanted | ({"mirror.topic.properties.exclude": chosen.exclude_configs} if chosen.exclude_configs else {})
