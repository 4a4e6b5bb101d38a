"""The syntax of a nemesis: `NAME[:CLUSTER[/ROLE]][+PARAMETER=VALUE …][@MOMENT[..END]]`.

Examples: `broker-kill`; `unclean-election:A`; `broker-pause:B/leader+how=sigstop`; `link-partition:A/all+mode=down`;
`broker-kill:A/all@stop`; `broker-kill:B/coordinator@stopping..10s`.
A link is named by the cluster at its far end. What is not fixed is drawn from the seed.

MOMENT is one of the scenario's, at which the fault begins, instead of during the load: `stop` stands for the first
moment of that name, `stop.B-A` for that of one mirror. END is a later moment, at which it is healed, or a number of
seconds (`10s`). Without END it lasts until the scenario next needs a whole system: until `return`, `start`, `settle`,
or the end.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.core.errors import UsageError
from harness.core.hints import closest
from nemeses import REGISTRY
from nemeses.base import Nemesis, Shape, Target

_FORM = re.compile(
    r"(?P<name>[^:+@]+)(:(?P<cluster>[^/+@]*)(/(?P<role>[^+@]*))?)?(?P<fixed>(\+[^+@]*)*)(@(?P<moment>.+?)(\.\.(?P<until>.+))?)?"
)
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")
WHOLE_AGAIN = ("return", "start", "settle", "end")
"""Moments, by their first word, at which a scenario needs everything healed: faults of moments end there by default."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A nemesis with the parts that the user fixed. text: as the user wrote it. moment, until: of the scenario; empty
    for a fault of the load."""

    text: str
    nemesis: Nemesis
    cluster: str | None = None
    role: str | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)
    moment: str = ""
    until: str = ""

    def moments(self, shape: Shape) -> tuple[str, str, float]:
        """(moment at which it begins, at which it is healed at the latest, seconds for which it lasts: 0 unlimited).

        Raises: UsageError when the scenario has no such moment, or the end is not after the beginning.
        """
        begin = self._moment(self.moment, shape.moments[:-1])  # nothing begins at the end
        later = shape.moments[shape.moments.index(begin) + 1 :]
        last = next(m for m in later if m.split(".")[0] in WHOLE_AGAIN)
        seconds = _SECONDS.fullmatch(self.until)
        if seconds is not None:
            return begin, last, float(seconds[1])
        return begin, self._moment(self.until, later) if self.until else last, 0.0

    def _moment(self, name: str, known: Sequence[str]) -> str:
        """The first moment of this name, or of this name's first word."""
        found = next((m for m in known if name in (m, m.split(".")[0])), None)
        if found is None:
            where = "the scenario" if name == self.moment else f"the scenario after {self.moment}"
            what = closest(name, {*known, *(m.split(".")[0] for m in known)})
            raise UsageError(f"nemesis {self.text!r}: {where} has no moment {name!r}; {what}")
        return found

    def narrowed(self, shape: Shape) -> Shape:
        """The shape with only the crash points that match what the user fixed, and the links that are there then."""
        left = tuple(p for p in shape.crash_points if all(p.get(k, v) == v for k, v in self.fixed.items()))
        links = shape.moment_links if self.moment else shape.links
        return dataclasses.replace(shape, crash_points=left, links=links)

    def targets(self, shape: Shape) -> Sequence[Target]:
        """The targets to draw from: those of the nemesis that the user did not rule out.

        Raises: UsageError when none is left, with what is needed or available.
        """
        possible = self.nemesis.targets(self.narrowed(shape))
        if not possible and self.fixed and self.nemesis.targets(shape):
            points = [f"route={point['route']}+step={point['step']}" for point in shape.crash_points]
            raise UsageError(f"nemesis {self.text!r}: the run does not reach it; {closest(self.text, points)}")
        if not possible:
            raise UsageError(f"nemesis {self.nemesis.name} cannot act on this run: it needs {self.nemesis.needs}")
        clusters = sorted({target.cluster for target in possible})
        if self.cluster is not None and self.cluster not in clusters:
            raise UsageError(
                f"nemesis {self.text!r}: no cluster {self.cluster!r} to act on; {closest(self.cluster, clusters)}"
            )
        wanted = (self.role,) if self.role is not None else self.nemesis.default_roles or self.nemesis.roles
        left = [t for t in possible if self.cluster in (None, t.cluster) and t.role in wanted]
        if not left:
            raise UsageError(f"nemesis {self.text!r}: role {self.role!r} does not exist on clusters of this size")
        return left


def parse(text: str) -> Selection:
    """Raises: UsageError that names the wrong part and the valid values."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"nemesis {text!r} cannot be read; write NAME[:CLUSTER[/ROLE]][+PARAMETER=VALUE][@MOMENT[..END]], "
            "e.g. broker-kill:A/leader"
        )
    name, moment = match["name"].strip(), match["moment"] or ""
    if name not in REGISTRY:
        raise UsageError(f"no nemesis is called {name!r}; {closest(name, REGISTRY)}")
    nemesis = REGISTRY[name]
    role = match["role"] or None
    if role is not None and role not in nemesis.roles:
        raise UsageError(f"nemesis {text!r}: no role {role!r}; {closest(role, nemesis.roles)}")
    fixed: dict[str, str] = {}
    for part in filter(None, (match["fixed"] or "").split("+")):
        key, equals, value = part.partition("=")
        if key not in nemesis.choices or not equals:
            raise UsageError(f"nemesis {text!r}: no parameter {key!r} to fix; {closest(key, nemesis.choices)}")
        if value not in nemesis.choices[key]:
            raise UsageError(f"nemesis {text!r}: {key} cannot be {value!r}; {closest(value, nemesis.choices[key])}")
        fixed[key] = value
    try:
        fixed = nemesis.fix(fixed)
    except UsageError as error:
        raise UsageError(f"nemesis {text!r}: {error}") from error
    if moment and nemesis.timing.whole_run:
        raise UsageError(f"nemesis {text!r}: {name} waits for a step of its own; leave out @{moment}")
    if match["until"] and _SECONDS.fullmatch(match["until"]) and not float(match["until"][:-1]):
        raise UsageError(f"nemesis {text!r}: a fault of 0 s breaks nothing; give more, or a moment")
    return Selection(
        text=text.strip(),
        nemesis=nemesis,
        cluster=match["cluster"] or None,
        role=role,
        fixed=fixed,
        moment=moment,
        until=match["until"] or "",
    )
