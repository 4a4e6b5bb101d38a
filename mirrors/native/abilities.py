"""What a build of Kafka can do as a mirror, as it was found on its brokers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.core.errors import MirrorError
from harness.topology.mirror import Capability, Support
from harness.wire.cluster_mirror_api import LEVEL_FEATURE
from harness.wire.frames import api_name
from mirrors.native.brokers import Abilities
from mirrors.native.filters import Filters

HOW_TO_NAME: str = (
    "name the image of a build that has it with --kafka-image (or --destination-image); `shatter images --kafka-tgz "
    "FILE` makes one of a release archive"
)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was found. same_ids: whether topics have the source's ids, None before the first start; epochs_told: whether
    brokers answer lookups of last mirrored epochs, None before it."""

    brokers: Mapping[int, Abilities] = field(default_factory=dict)
    filters: Filters = field(default_factory=Filters)
    same_ids: bool | None = None
    epochs_told: bool | None = None


def check_brokers(brokers: Mapping[int, Abilities], silent: Mapping[int, str], *, cluster: str, image: str) -> None:
    """Raises: MirrorError naming image, cluster and fix when no broker has what the driver needs."""
    if any(not found.missing for found in brokers.values()):
        return
    made_of = f" (image {image})" if image else ""
    if not brokers:
        raise MirrorError(f"no broker of cluster {cluster}{made_of} answers: {'; '.join(silent.values())}")
    fewest = min((found.missing for found in brokers.values()), key=len)
    names = ", ".join(f"{api_name(key)} ({key})" for key in fewest)
    raise MirrorError(
        f"the brokers of cluster {cluster}{made_of} have no Cluster Mirroring (KIP-1279): the requests {names} are "
        f"missing; {HOW_TO_NAME}"
    )


def capabilities(found: Found) -> dict[Capability, Support]:
    """Capability → whether the build has it, and why not."""
    yes, filters = Support(True), found.filters
    levels = [one.level for one in found.brokers.values() if not one.missing]
    reset = bool(levels) and min(levels) > 0
    groups = filters.refused.get("mirror.groups.include", "")
    acls = filters.refused.get("mirror.acl.include", "")
    return {
        Capability.OFFSET_IDENTITY: yes,
        Capability.TOPIC_ID: _seen(found.same_ids, "its topics have other ids than the source's"),
        Capability.IDENTITY_NAMES: yes,
        Capability.FAILOVER: yes,
        Capability.FAILBACK: yes,
        Capability.GROUP_OFFSETS: Support(not groups, groups),
        Capability.ACL_SYNC: Support(not acls, acls),
        Capability.CONFIG_SYNC: yes,
        Capability.ABORTED_DATA: yes,
        Capability.EXACTLY_ONCE: yes,
        Capability.PID_RESET_HONOURED: Support(
            reset, "" if reset else f"the brokers run without feature {LEVEL_FEATURE}: they do not act on the record"
        ),
        Capability.CUT_BY_EPOCH: _seen(found.epochs_told, "no broker answers lookups of last mirrored epochs"),
    }


def _seen(value: bool | None, why_not: str) -> Support:
    if value is None:
        return Support(False, "it is found out at the first start")
    return Support(value, "" if value else why_not)
