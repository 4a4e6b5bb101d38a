"""The scoreboard of the design threads: claims, the designs that hold or break them, and what stored runs found.

A stored run counts for a claim's design when it finished, was judged, mirrored with that very design, and was made
with the test that the claim names.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any, Final

from harness.errors import HistoryError, UsageError
from harness.history.runfile import read_meta
from harness.mirrors.reference.design import Design, design_from, parse_design
from harness.report.results import Results, load_results
from harness.testspec import TestSpec, parse_spec

MIRROR: Final = "reference"


class Role(StrEnum):
    """What a design is to a claim."""

    HOLDS = "holds"
    BREAKS = "breaks"


class Outcome(StrEnum):
    """What stored runs say of a design."""

    SHOWN = "shown"
    NOT_SHOWN = "not shown"
    CONTRADICTED = "contradicted"
    UNKNOWN = "unknown"
    NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One argument. holds, breaks: designs as `--design` takes them. test: keys of the test that shows it."""

    name: str
    argument: str
    holds: tuple[str, ...]
    breaks: tuple[str, ...]
    kinds: tuple[str, ...]
    test: Mapping[str, Any] | None = None
    why_not: str = ""

    def spec(self, design: str) -> TestSpec:
        """The test of one of its designs. Raises UsageError when there is none."""
        if self.test is None:
            raise UsageError(f"claim {self.name!r} has no test: {self.why_not}")
        values = {"name": "claims", "mirror": MIRROR, "design": tuple(design.split()), **self.test}
        return parse_spec(values, where=f"claim {self.name!r}")


@dataclass(frozen=True, kw_only=True)
class StoredResult:
    """A judged run of the reference mirror."""

    folder: Path
    spec: TestSpec
    design: Design
    results: Results


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What runs found of one design of one claim. found: kind → how many, over all runs."""

    design: str
    role: Role
    outcome: Outcome
    runs: tuple[str, ...] = ()
    found: Mapping[str, int] = field(default_factory=dict)


def load_claims() -> tuple[Claim, ...]:
    """All claims, in the order of claims.toml."""
    text = (resources.files("harness") / "claims.toml").read_text(encoding="utf-8")
    return tuple(
        Claim(
            **{
                key: tuple(value) if isinstance(value, list) else value  # type: ignore[arg-type]
                for key, value in one.items()
            }
        )
        for one in tomllib.loads(text)["claim"]
    )


def stored_results(folder: Path) -> list[StoredResult]:
    """Judged and finished runs of the reference mirror under a folder; what is none is passed over."""
    found = []
    for path in sorted(folder.glob("*/run.json")):
        try:
            meta = read_meta(path.parent)
            if meta.test.mirror != MIRROR or meta.status != "finished":
                continue
            values = {k: v for k, v in meta.test.mirror_options.items() if k in _SWITCHES}
            spec = parse_spec(meta.test.spec, where=str(path))
            design = design_from(values) if values else parse_design(spec.design)
            results = load_results(path.parent)
        except (HistoryError, UsageError):
            continue
        found.append(StoredResult(folder=path.parent, spec=spec, design=design, results=results))
    return found


_SWITCHES: Final = frozenset(Design.__dataclass_fields__)


def findings(claim: Claim, stored: Sequence[StoredResult]) -> list[Finding]:
    """What the stored runs say of each of a claim's designs."""
    return [_finding(claim, design, role, stored) for role in Role for design in getattr(claim, role.value)]


def _finding(claim: Claim, design: str, role: Role, stored: Iterable[StoredResult]) -> Finding:
    chosen = parse_design(design.split())
    runs = [one for one in stored if one.design == chosen and _same_test(claim, one.spec)]
    found: Counter[str] = Counter()
    for one in runs:
        found.update({a.kind: a.count for a in one.results.anomalies if a.kind in claim.kinds and a.count})
    return Finding(
        design=design,
        role=role,
        outcome=outcome(role, broken=bool(found), verdicts=[one.results.verdict for one in runs]),
        runs=tuple(one.folder.name for one in runs),
        found=dict(sorted(found.items())),
    )


def _same_test(claim: Claim, spec: TestSpec) -> bool:
    if claim.test is None:
        return False
    wanted = claim.spec("")
    return all(getattr(spec, key) == getattr(wanted, key) for key in (k.replace("-", "_") for k in claim.test))


def outcome(role: Role, *, broken: bool, verdicts: Sequence[str]) -> Outcome:
    """broken: whether a kind of the claim was found. verdicts: of the runs."""
    if not verdicts:
        return Outcome.NOT_RUN
    if role is Role.BREAKS:
        return Outcome.SHOWN if broken else Outcome.NOT_SHOWN
    if broken:
        return Outcome.CONTRADICTED
    return Outcome.SHOWN if "valid" in verdicts else Outcome.UNKNOWN


def missing(claims: Iterable[Claim], stored: Sequence[StoredResult]) -> list[tuple[Claim, str]]:
    """(claim, design) that no stored run shows and that can be run."""
    return [
        (claim, one.design)
        for claim in claims
        if claim.test is not None
        for one in findings(claim, stored)
        if one.outcome is Outcome.NOT_RUN
    ]
