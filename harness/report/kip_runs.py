"""Results of stored runs of Cluster Mirroring, for docs/kip-1279.md, which keeps them in docs/kip-1279.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from harness.core.errors import HistoryError, UsageError
from harness.core.testspec import TestSpec, parse_spec
from harness.history.runfile import read_meta
from harness.report.results import load_results
from mirrors.reference.server.design import PRESETS, STRICT, parse_design

IMPLEMENTATIONS: Final = ("reference", "native")


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
    for path in sorted(folder.glob("*/run.json")):
        try:
            meta = read_meta(path.parent)
            if meta.test.mirror not in IMPLEMENTATIONS or meta.status != "finished":
                continue
            spec = parse_spec(meta.test.spec, where=str(path))
            implementation = _implementation(spec)
            results = load_results(path.parent)
        except (HistoryError, UsageError):
            continue
        if implementation is None:
            continue
        runs.append(
            KipRun(
                run=path.parent.name,
                implementation=implementation,
                scenario=spec.scenario,
                workload=spec.workload,
                nemesis=tuple(spec.nemesis),
                verdict=results.verdict,
                found={a.kind: a.count for a in results.anomalies if a.count},
                forbidden=tuple(sorted(a.kind for a in results.forbidden if a.severity != "unknown")),
                figures={name: n for name, n in results.raw.get("figures", {}).items() if name.startswith("RPO ")},
            )
        )
    return runs


def _implementation(spec: TestSpec) -> str | None:
    if spec.mirror != "reference":
        image = spec.destination_image or spec.kafka_image
        return f"{spec.mirror} {image}" if image else spec.mirror
    named = {STRICT: "strict", **{preset: name for name, preset in PRESETS.items()}}
    name = named.get(parse_design(spec.design))
    return None if name is None else f"reference {name}"


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
