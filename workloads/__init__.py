"""Workloads: what clients do during a test, and the final reads that end it. To add one: one file, one line here."""

from __future__ import annotations

from typing import Final

from workloads.administration import Administration
from workloads.append import Append
from workloads.base import Workload
from workloads.groups import Groups

REGISTRY: Final[dict[str, Workload]] = {workload.name: workload for workload in (Append(), Administration(), Groups())}
"""Name → workload."""

DESCRIPTIONS: Final[dict[str, str]] = {name: workload.description for name, workload in REGISTRY.items()}
"""Name → description, in one line."""

__all__ = ["DESCRIPTIONS", "REGISTRY"]
