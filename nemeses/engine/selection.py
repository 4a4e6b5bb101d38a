"""The syntax of a nemesis: `NAME[:CLUSTER[/ROLE]][+PARAMETER=VALUE …]`.

Examples: `broker-kill`; `unclean-election:A`; `broker-pause:B/leader+how=sigstop`; `link-partition:A/all+mode=down`.
A link is named by the cluster at its far end. What is not fixed is drawn from the seed.
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

_FORM = re.compile(r"(?P<name>[^:+]+)(:(?P<cluster>[^/+]*)(/(?P<role>[^+]*))?)?(?P<fixed>(\+[^+]*)*)")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A nemesis with the parts that the user fixed. text: as the user wrote it."""

    text: str
    nemesis: Nemesis
    cluster: str | None = None
    role: str | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)

    def narrowed(self, shape: Shape) -> Shape:
        """The shape with only the crash points that match what the user fixed."""
        left = tuple(p for p in shape.crash_points if all(p.get(k, v) == v for k, v in self.fixed.items()))
        return dataclasses.replace(shape, crash_points=left)

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
            f"nemesis {text!r} cannot be read; write NAME[:CLUSTER[/ROLE]][+PARAMETER=VALUE], e.g. broker-kill:A/leader"
        )
    name = match["name"].strip()
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
    return Selection(text=text.strip(), nemesis=nemesis, cluster=match["cluster"] or None, role=role, fixed=fixed)
