"""Results of stored runs of Cluster Mirroring, for docs/kip-1279.md, which keeps them in docs/kip-1279.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from harness.core.errors import UsageError
from harness.report.judged_runs import REFERENCE, JudgedRun, judged_runs
from mirrors.reference.server.design import PRESETS, STRICT

IMPLEMENTATIONS: Final = (REFERENCE, "native")


@dataclass(frozen=True, kw_only=True)
class KipRun:
    """A judged run. implementation: `reference strict`, `reference kip-2026-07`, `native IMAGE`; nemesis: the faults
    as given; found: kind → how many; forbidden: those that the contract never allows; figures: name → number."""

    run: str
    implementation: str
    scenario: str
    workload: str
    nemesis: tuple[str, ...]
    verdict: str
    found: Mapping[str, int]
    forbidden: tuple[str, ...]
    figures: Mapping[str, int]


def stored_kip_runs(folder: Path) -> list[KipRun]:
    """Judged and finished runs under a folder, by the folder's names; anything else is skipped, other designs of the
    reference mirror than `strict` and the presets too (docs/claims.md has those)."""
    runs = []
    for one in judged_runs(folder, mirrors=IMPLEMENTATIONS):
        implementation = _implementation(one)
        if implementation is None:
            continue
        runs.append(
            KipRun(
                run=one.run,
                implementation=implementation,
                scenario=one.spec.scenario,
                workload=one.spec.workload,
                nemesis=tuple(one.spec.nemesis),
                verdict=one.results.verdict,
                found=one.found,
                forbidden=tuple(sorted(one.forbidden)),
                figures={name: n for name, n in one.results.raw.get("figures", {}).items() if name.startswith("RPO ")},
            )
        )
    return runs


def _implementation(one: JudgedRun) -> str | None:
    if one.design is None:
        image = one.spec.destination_image or one.spec.kafka_image
        return f"{one.spec.mirror} {image}" if image else one.spec.mirror
    name = {STRICT: "strict", **{preset: name for name, preset in PRESETS.items()}}.get(one.design)
    return None if name is None else f"{REFERENCE} {name}"


def publish(runs: Iterable[KipRun]) -> str:
    """The runs as JSON: what `read_kip_runs` reads."""
    return json.dumps([asdict(run) for run in runs], indent=1, sort_keys=True) + "\n"


def read_kip_runs(path: Path) -> list[KipRun]:
    """The runs of a kip-1279.json. Raises UsageError when it is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return [
            KipRun(**{**one, "nemesis": tuple(one["nemesis"]), "forbidden": tuple(one["forbidden"])}) for one in found
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no kip-1279.json of `shatter kip --write`: {error}") from error
