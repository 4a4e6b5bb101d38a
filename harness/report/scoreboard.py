"""The scoreboard of the design threads: claims, the designs that hold or break them, and what stored runs found.

A stored run counts for a claim's design when it finished, was judged, mirrored with that very design, and was made
with the test that the claim names. One run proves little about a race, so the board says in how many of how many runs
the design did what the claim says (k of n), and `missing` asks for as many runs as `ENOUGH` requires.
The results behind the published board are kept in docs/claims.json (`publish`).
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any, Final

from harness.core.errors import UsageError
from harness.core.hints import closest
from harness.core.testspec import TestSpec, parse_spec
from harness.report.judged_runs import REFERENCE, judged_runs
from mirrors.reference.server.design import Design, design_from, design_values, parse_design


class Role(StrEnum):
    """The role of a design in a claim."""

    HOLDS = "holds"
    BREAKS = "breaks"


ENOUGH: Final[Mapping[Role, int]] = {Role.HOLDS: 5, Role.BREAKS: 3}
"""Number of runs that a design's row needs."""


class Outcome(StrEnum):
    """The outcome of a design's stored runs."""

    SHOWN = "shown"
    NOT_SHOWN = "not shown"
    CONTRADICTED = "contradicted"
    OTHERS = "other kinds found"
    UNKNOWN = "unknown"
    NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One argument. holds, breaks: designs as `--design` takes them. test: keys of the test that shows it.

    each: every one of the kinds has to be found, not just one of them.
    """

    name: str
    argument: str
    holds: tuple[str, ...]
    breaks: tuple[str, ...]
    kinds: tuple[str, ...]
    test: Mapping[str, Any] | None = None
    why_not: str = ""
    each: bool = False

    def spec(self, design: str) -> TestSpec:
        """The test of one of its designs. Raises UsageError when there is none."""
        if self.test is None:
            raise UsageError(f"claim {self.name!r} has no test: {self.why_not}")
        values = {"name": "claims", "mirror": REFERENCE, "design": tuple(design.split()), **self.test}
        return parse_spec(values, where=f"claim {self.name!r}")


@dataclass(frozen=True, kw_only=True)
class StoredResult:
    """A judged run of the reference mirror. found: kind → how many; forbidden: those that its contract never allows."""

    run: str
    spec: TestSpec
    design: Design
    verdict: str
    found: Mapping[str, int]
    forbidden: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """The result of the runs of one design of one claim.

    shown: in how many of `runs` the design did what the claim says (held, by a valid run; or broke). found: kind of the
    claim → how many, over all runs; forbidden: kinds that the design's contract does not allow; missing: kinds of the
    claim that no run found and that had to be found.
    """

    design: str
    role: Role
    outcome: Outcome
    runs: tuple[str, ...] = ()
    shown: int = 0
    found: Mapping[str, int] = field(default_factory=dict)
    forbidden: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def load_claims() -> tuple[Claim, ...]:
    """All claims, in the order of claims.toml."""
    text = (resources.files("harness.report") / "claims.toml").read_text(encoding="utf-8")
    return tuple(
        Claim(
            **{
                key: tuple(value) if isinstance(value, list) else value  # type: ignore[arg-type]
                for key, value in one.items()
            }
        )
        for one in tomllib.loads(text)["claim"]
    )


def named(claims: Sequence[Claim], names: Sequence[str]) -> tuple[Claim, ...]:
    """The claims of these names, all of them for none. Raises UsageError for a name that no claim has."""
    known = [claim.name for claim in claims]
    for name in names:
        if name not in known:
            raise UsageError(f"no claim is called {name!r}; {closest(name, known)}")
    return tuple(claim for claim in claims if not names or claim.name in names)


def stored_results(folder: Path) -> list[StoredResult]:
    """Judged and finished runs of the reference mirror under a folder; anything else is skipped."""
    return [
        StoredResult(
            run=one.run,
            spec=one.spec,
            design=one.design,
            verdict=one.results.verdict,
            found=one.found,
            forbidden=one.forbidden,
        )
        for one in judged_runs(folder, mirrors=(REFERENCE,))
        if one.design is not None
    ]


def publish(stored: Iterable[StoredResult], claims: Sequence[Claim]) -> str:
    """The stored results that count for a claim, as JSON: what `published` reads."""
    counted = [
        {
            "run": one.run,
            "spec": one.spec.model_dump(mode="json", exclude_defaults=True),
            "design": design_values(one.design),
            "verdict": one.verdict,
            "found": dict(sorted(one.found.items())),
            "forbidden": sorted(one.forbidden),
        }
        for one in stored
        if any(_counts(claim, design, one) for claim in claims for design in (*claim.holds, *claim.breaks))
    ]
    return json.dumps(counted, indent=1, sort_keys=True) + "\n"


def published(text: str) -> list[StoredResult]:
    """Stored results from the JSON of `publish`."""
    return [
        StoredResult(
            run=one["run"],
            spec=parse_spec(one["spec"], where="docs/claims.json"),
            design=design_from(one["design"]),
            verdict=one["verdict"],
            found=one["found"],
            forbidden=frozenset(one["forbidden"]),
        )
        for one in json.loads(text)
    ]


def read_published(path: Path) -> list[StoredResult]:
    """Stored results from a claims.json. Raises UsageError when it is none."""
    try:
        return published(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no claims.json of `shatter claims --write`: {error}") from error


def claim_results(claim: Claim, stored: Sequence[StoredResult]) -> list[ClaimResult]:
    """The results of the stored runs for each of a claim's designs."""
    return [_result(claim, design, role, stored) for role in Role for design in getattr(claim, role.value)]


def _result(claim: Claim, design: str, role: Role, stored: Iterable[StoredResult]) -> ClaimResult:
    runs = [one for one in stored if _counts(claim, design, one)]
    found: Counter[str] = Counter()
    for one in runs:
        found.update({kind: count for kind, count in one.found.items() if kind in claim.kinds})
    forbidden = sorted({kind for one in runs for kind in one.forbidden})
    every = claim.each and runs and role is Role.BREAKS
    missing = tuple(kind for kind in claim.kinds if kind not in found) if every else ()
    broken = bool(found) and not missing
    return ClaimResult(
        design=design,
        role=role,
        outcome=outcome(role, broken=broken, others=bool(forbidden), verdicts=[one.verdict for one in runs]),
        runs=tuple(one.run for one in runs),
        shown=sum(_shows(claim, role, one) for one in runs),
        found=dict(sorted(found.items())),
        forbidden=tuple(forbidden),
        missing=missing,
    )


def _shows(claim: Claim, role: Role, one: StoredResult) -> bool:
    """Whether this run alone shows what the claim says about the design."""
    found = [kind in one.found for kind in claim.kinds]
    if role is Role.HOLDS:
        return one.verdict == "valid" and not any(found)
    return not one.forbidden and (all(found) if claim.each else any(found))


def _counts(claim: Claim, design: str, one: StoredResult) -> bool:
    return one.design == parse_design(design.split()) and _same_test(claim, one.spec)


def _same_test(claim: Claim, spec: TestSpec) -> bool:
    if claim.test is None:
        return False
    wanted = claim.spec("")
    return all(getattr(spec, key) == getattr(wanted, key) for key in (k.replace("-", "_") for k in claim.test))


def outcome(role: Role, *, broken: bool, others: bool, verdicts: Sequence[str]) -> Outcome:
    """broken: whether kinds of the claim were found. others: whether kinds that the contract never allows were.
    verdicts: of the runs."""
    if not verdicts:
        return Outcome.NOT_RUN
    if role is Role.HOLDS and broken:
        return Outcome.CONTRADICTED
    if others:
        return Outcome.OTHERS
    if role is Role.BREAKS:
        return Outcome.SHOWN if broken else Outcome.NOT_SHOWN
    return Outcome.SHOWN if "valid" in verdicts else Outcome.UNKNOWN


def missing(claims: Iterable[Claim], stored: Sequence[StoredResult]) -> list[TestSpec]:
    """Tests that have to be run until every design of every claim has `ENOUGH` runs: first one of each, then another
    of each that still lacks some. Claims that name the same test share its runs."""
    lacking: list[tuple[TestSpec, int]] = []
    for claim in claims:
        if claim.test is None:
            continue
        for one in claim_results(claim, stored):
            spec, runs = claim.spec(one.design), ENOUGH[one.role] - len(one.runs)
            known = next((n for n, (other, _) in enumerate(lacking) if other == spec), None)
            if known is None:
                lacking.append((spec, runs))
            else:
                lacking[known] = (spec, max(runs, lacking[known][1]))
    most = max((runs for _, runs in lacking), default=0)
    return [spec for done in range(most) for spec, runs in lacking if runs > done]
