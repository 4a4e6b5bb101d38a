"""Every argument of the design threads as a switch: names, values, the argument in one sentence, the right value. Data.

A design is one value per switch. Presets reproduce the revisions of the design; `strict` has every right value.
What each value does is a small policy next to its user, looked up in a table by the value.
"""

# ruff: noqa: RUF009
from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final

from harness.core.errors import UsageError


class FetchLimit(StrEnum):
    """Up to which offset a partition of the source is fetched."""

    LAST_STABLE = "last_stable"
    HIGH_WATERMARK = "high_watermark"


class StopAt(StrEnum):
    """Where a stop ends the mirrored log, while the source can be asked."""

    DECIDED = "decided"
    CARRIED = "carried"


class OnStop(StrEnum):
    """How transactions that are open when a partition is stopped are closed."""

    TRUNCATE = "truncate_to_last_stable"
    ABORT = "abort_open_transactions"
    NOTHING = "nothing"


class ProducerIds(StrEnum):
    """How producer ids are rewritten."""

    VERBATIM = "verbatim"
    NEGATED = "negated"
    CLUSTER_REGION = "cluster_region"
    POSITIVE_REGION = "positive_region"
    RESERVED_BLOCK = "reserved_block"


class Toggle(StrEnum):
    """On or off."""

    ON = "on"
    OFF = "off"


class LeaderEpoch(StrEnum):
    """Which cluster's leader epochs the batches have."""

    REWRITE = "rewrite"
    PRESERVE = "preserve"


class EpochBump(StrEnum):
    """When the destination's leader epoch is raised to the source's."""

    NONE = "none"
    REACTIVE = "reactive"
    PROACTIVE = "proactive"


class GroupOffsets(StrEnum):
    """What is committed for a group whose offset is outside of the destination's log."""

    CLAMPED = "clamped"
    RAW = "raw"


class GroupGuard(StrEnum):
    """Which groups' offsets are overwritten."""

    INACTIVE_ONLY = "inactive_only"
    NONE = "none"


class AclSync(StrEnum):
    """What becomes of bindings that only the destination has."""

    KEEP_LOCAL = "keep_local"
    SOURCE_WINS = "source_wins"
    OFF = "off"


class FailbackCut(StrEnum):
    """Where a log is truncated before the mirror overwrites it."""

    LAST_MIRRORED = "last_mirrored"
    ZERO = "zero"
    NONE = "none"


class RetentionJump(StrEnum):
    """What happens when the source's log start passes the destination's end."""

    FOLLOW = "follow"
    STALL = "stall"


class StateKey(StrEnum):
    """The key that spreads the records of the state topic over its partitions."""

    MIRROR_TOPIC_PARTITION = "mirror_topic_partition"
    MIRROR = "mirror"


class Resume(StrEnum):
    """Where a partition resumes after a crash."""

    EXACT = "exact"
    REPLAY = "replay"


class Gaps(StrEnum):
    """How gaps that compaction left in the offsets are handled."""

    KEEP = "keep"
    RENUMBER = "renumber"


class Unclean(StrEnum):
    """What happens after an unclean election on the source."""

    RECONCILE = "reconcile"
    IGNORE = "ignore"


def _switch(right: StrEnum, argument: str) -> Any:
    return field(default=right, metadata={"argument": argument})


@dataclass(frozen=True, kw_only=True)
class Design:
    """One value per switch; the defaults are the right ones."""

    fetch_limit: FetchLimit = _switch(
        FetchLimit.HIGH_WATERMARK,
        "Mirror up to the high watermark, with open transactions to close at a failover, or as a read_committed "
        "consumer up to the last stable offset, which can be between a transaction's records and its marker.",
    )
    stop_at: StopAt = _switch(
        StopAt.DECIDED,
        "A stop mirrors on until the transactions that were open on the source have ended there, while it can be "
        "asked, or ends the log where it is.",
    )
    on_stop: OnStop = _switch(OnStop.ABORT, "How a failover closes transactions that are still open.")
    producer_ids: ProducerIds = _switch(
        ProducerIds.RESERVED_BLOCK,
        "Equal producer ids on both clusters swallow local writes as duplicates; negative ones make brokers skip the "
        "producer state.",
    )
    pid_reset_record: Toggle = _switch(
        Toggle.ON, "A MIRROR_PID_RESET record at the stop tells brokers to forget the source's producers."
    )
    leader_epoch: LeaderEpoch = _switch(
        LeaderEpoch.REWRITE, "Separate epoch domains, or the source's epochs kept in the batches."
    )
    epoch_bump: EpochBump = _switch(
        EpochBump.NONE, "Followers drop batches whose epoch is above the leader epoch that they know."
    )
    group_offsets: GroupOffsets = _switch(
        GroupOffsets.CLAMPED, "A committed offset outside of the log skips records with auto.offset.reset=latest."
    )
    group_guard: GroupGuard = _switch(
        GroupGuard.INACTIVE_ONLY, "Offsets of groups that are active on the destination must not be overwritten."
    )
    acl_sync: AclSync = _switch(AclSync.KEEP_LOCAL, "Whether a DENY that only the destination has survives.")
    config_sync_after_stop: Toggle = _switch(
        Toggle.OFF, "After a failover the old source's retention would reach the destination's topic."
    )
    failback_cut: FailbackCut = _switch(
        FailbackCut.LAST_MIRRORED, "A failback truncates to the last mirrored offset, to zero, or not at all."
    )
    retention_jump: RetentionJump = _switch(
        RetentionJump.FOLLOW, "The source's log start passed the destination's log end."
    )
    state_key: StateKey = _switch(
        StateKey.MIRROR_TOPIC_PARTITION, "One key per mirror makes one partition of the state topic hot."
    )
    resume: Resume = _switch(Resume.EXACT, "After a crash: resume at the log end, or send a batch again.")
    gaps: Gaps = _switch(Gaps.KEEP, "Gaps that compaction left keep their offsets, or are closed.")
    unclean: Unclean = _switch(
        Unclean.RECONCILE,
        "After an unclean election on the source: truncate to where the logs agree by epoch, or carry on.",
    )


SWITCHES: Final[Mapping[str, type[StrEnum]]] = {f.name: type(f.default) for f in fields(Design)}  # type: ignore[misc]

STRICT: Final = Design()

PRESETS: Final[Mapping[str, Design]] = {
    "kip-2026-02": replace(
        STRICT,
        stop_at=StopAt.CARRIED,
        on_stop=OnStop.NOTHING,
        producer_ids=ProducerIds.NEGATED,
        pid_reset_record=Toggle.OFF,
        group_offsets=GroupOffsets.RAW,
    ),
    "kip-2026-03": replace(
        STRICT,
        fetch_limit=FetchLimit.LAST_STABLE,
        stop_at=StopAt.CARRIED,
        on_stop=OnStop.TRUNCATE,
        producer_ids=ProducerIds.CLUSTER_REGION,
        pid_reset_record=Toggle.OFF,
        group_offsets=GroupOffsets.RAW,
    ),
    "kip-2026-05": replace(
        STRICT,
        fetch_limit=FetchLimit.LAST_STABLE,
        stop_at=StopAt.CARRIED,
        on_stop=OnStop.TRUNCATE,
        producer_ids=ProducerIds.VERBATIM,
        group_offsets=GroupOffsets.RAW,
    ),
    "kip-2026-07": replace(
        STRICT,
        fetch_limit=FetchLimit.HIGH_WATERMARK,
        stop_at=StopAt.CARRIED,
        on_stop=OnStop.ABORT,
        producer_ids=ProducerIds.VERBATIM,
        leader_epoch=LeaderEpoch.PRESERVE,
        epoch_bump=EpochBump.PROACTIVE,
        acl_sync=AclSync.SOURCE_WINS,
        config_sync_after_stop=Toggle.ON,  # observed on a build of that month
    ),
    "strict": STRICT,
}


def parse_design(arguments: Iterable[str]) -> Design:
    """`PRESET` and `SWITCH=VALUE` in this order; the later one wins. Raises UsageError naming the right ones."""
    design = STRICT
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            design = PRESETS[_known(name, PRESETS, "preset")]
            continue
        switch = SWITCHES[_known(name, SWITCHES, "switch")]
        values = {str(v): v for v in switch}
        chosen: Any = values[_known(value, values, f"value of {name}")]
        design = replace(design, **{name: chosen})
    return design


def design_from(values: Mapping[str, str]) -> Design:
    """A design from switch → value. Raises UsageError naming the right ones."""
    return parse_design(f"{name}={value}" for name, value in values.items())


def design_values(design: Design) -> dict[str, str]:
    """Switch → value: what `design_from` reads."""
    return {f.name: str(getattr(design, f.name)) for f in fields(Design)}


def _known(name: str, known: Iterable[str], what: str) -> str:
    names = list(known)
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UsageError(f"{name!r} is no {what} of the reference mirror; there are: {', '.join(names)}.{hint}")
