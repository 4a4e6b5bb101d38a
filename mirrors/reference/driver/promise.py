"""The contract that a design's runs are judged by.

A preset has its own contract. Any other design is judged as `strict`, with one modifier per wrong value; the effects of
each are in contracts.toml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from mirrors.reference.server.design import (
    PRESETS,
    STRICT,
    SWITCHES,
    AclSync,
    Design,
    EpochBump,
    FailbackCut,
    FetchLimit,
    Gaps,
    GroupGuard,
    GroupOffsets,
    LeaderEpoch,
    OnStop,
    ProducerIds,
    Resume,
    RetentionJump,
    StateKey,
    StopAt,
    Toggle,
    Unclean,
    design_values,
)

FAMILY: Final = "cluster-mirror"

Test = Callable[[Design], bool]

WRONG: Final[Mapping[str, Test]] = {
    # A log cut to the last stable offset contains no part of a committed transaction.
    "fetch_limit-last_stable": lambda d: d.fetch_limit is FetchLimit.LAST_STABLE and d.on_stop is not OnStop.TRUNCATE,
    "stop_at-carried": lambda d: d.stop_at is StopAt.CARRIED,
    "on_stop-truncate_to_last_stable": lambda d: d.on_stop is OnStop.TRUNCATE,
    "on_stop-nothing": lambda d: d.on_stop is OnStop.NOTHING,
    "producer_ids-verbatim": lambda d: d.producer_ids is ProducerIds.VERBATIM,
    "producer_ids-negated": lambda d: d.producer_ids is ProducerIds.NEGATED,
    "producer_ids-cluster_region": lambda d: d.producer_ids is ProducerIds.CLUSTER_REGION,
    "producer_ids-positive_region": lambda d: d.producer_ids is ProducerIds.POSITIVE_REGION,
    # Preserved epochs are right as long as something raises the destination's above them.
    "leader_epoch-preserve": lambda d: d.leader_epoch is LeaderEpoch.PRESERVE and d.epoch_bump is EpochBump.NONE,
    "group_offsets-raw": lambda d: d.group_offsets is GroupOffsets.RAW,
    "group_guard-none": lambda d: d.group_guard is GroupGuard.NONE,
    "acl_sync-source_wins": lambda d: d.acl_sync is AclSync.SOURCE_WINS,
    "config_sync_after_stop-on": lambda d: d.config_sync_after_stop is Toggle.ON,
    "failback_cut-none": lambda d: d.failback_cut is FailbackCut.NONE,
    "retention_jump-stall": lambda d: d.retention_jump is RetentionJump.STALL,
    "state_key-mirror": lambda d: d.state_key is StateKey.MIRROR,
    "resume-replay": lambda d: d.resume is Resume.REPLAY,
    "gaps-renumber": lambda d: d.gaps is Gaps.RENUMBER,
    "unclean-ignore": lambda d: d.unclean is Unclean.IGNORE,
}
"""SWITCH-VALUE → whether a design has it and it makes the design wrong. The modifier is `design-SWITCH-VALUE`."""

HARMLESS: Final[Mapping[str, str]] = {
    "pid_reset_record-off": "released brokers store the record and ignore it",
    "epoch_bump-reactive": "there is nothing to raise where epochs are rewritten",
    "epoch_bump-proactive": "there is nothing to raise where epochs are rewritten",
    "acl_sync-off": "no ACL is synced, so none can be lost",
    "failback_cut-zero": "everything is mirrored again: expensive, but right",
}
"""SWITCH-VALUE pairs that differ from `strict` without an anomaly on released brokers, and why."""


def modifiers(design: Design) -> tuple[str, ...]:
    """The modifiers of a design's contract."""
    return tuple(f"design-{name}" for name, has in WRONG.items() if has(design))


def contract_of(design: Design) -> str:
    """The contract of a design."""
    for name, preset in PRESETS.items():
        if preset == design:
            return f"{FAMILY}/{name}"
    return "+".join((f"{FAMILY}/strict", *modifiers(design)))


def listing(*, verbose: bool = False) -> list[dict[str, Any]]:
    """What `shatter list designs` shows: a row per switch, and per preset with its differences from `strict`."""
    right = design_values(STRICT)
    rows = []
    for one in fields(Design):
        row: dict[str, Any] = {"name": one.name, "right": right[one.name], "others": _others(one.name, right)}
        rows.append({**row, "the argument": one.metadata["argument"]} if verbose else row)
    for name, preset in PRESETS.items():
        changed = {s: v for s, v in design_values(preset).items() if v != right[s]}
        row = {"name": name, "right": "", "others": [f"{s}={v}" for s, v in changed.items()]}
        rows.append({**row, "the argument": "a preset"} if verbose else row)
    return rows


def _others(switch: str, right: Mapping[str, str]) -> list[str]:
    return [str(value) for value in SWITCHES[switch] if str(value) != right[switch]]
