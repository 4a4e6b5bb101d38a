"""An administrator's changes: drawn from the seed, the same for every run with that seed and those topics. Pure.

While the source is written to: ACLs that allow readers are created and deleted on it, ACLs that deny readers are
created only on the other clusters, and topics' configurations change on it. After a move the cluster that is written to
now gets configurations of its own, and so does the one that was left: they expose a mirror that still syncs the old
source's configurations. A cluster that a mirror writes to gets no changes of configurations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from harness.history.ops import F
from harness.wire.acls import Binding

_DAY_MS: Final = 24 * 3600 * 1000
_MIB: Final = 1024 * 1024
_KEPT_ROUNDS: Final = 2  # a rule is deleted after this many rounds


@dataclass(frozen=True, kw_only=True)
class Act:
    """One change on one cluster: a rule that is created or deleted, or entries of a topic (named as on A)."""

    cluster: str
    f: F
    topic: str
    binding: Binding | None = None
    entries: Mapping[str, str] = field(default_factory=dict)

    @property
    def value(self) -> str:
        """Its recorded value: the rule's line, or the entries."""
        if self.binding is not None:
            return self.binding.line()
        return ", ".join(f"{name}={value}" for name, value in self.entries.items())


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Where clients work in one part of a run. left: clusters that clients have left and no mirror writes to."""

    source: str
    writable: tuple[str, ...]
    mirrored_to: tuple[str, ...]
    left: tuple[str, ...]


def situation(source: str, known: Collection[str], endpoints: Mapping[str, bool]) -> Situation:
    """source: the first cluster that was written to; known: all clusters so far; endpoints: letter → writable."""
    return Situation(
        source=source,
        writable=tuple(sorted(letter for letter, writable in endpoints.items() if writable)),
        mirrored_to=tuple(sorted(letter for letter, writable in endpoints.items() if not writable)),
        left=tuple(sorted(letter for letter in known if letter not in endpoints)),
    )


class AdminPlan:
    """Draws an endless series of acts. topics: names on A, which rules use on every cluster."""

    def __init__(self, *, seed: int, topics: Sequence[str], authorizer: bool) -> None:
        self._random = Random(f"{seed}/administrator")
        self._topics = tuple(topics)
        self._authorizer = authorizer
        self._numbers = iter(range(1_000_000))
        self._made: list[list[tuple[str, Binding]]] = []

    def acts(self, where: Situation) -> Iterator[Act]:
        """The acts of one part of a run, in order."""
        moved = where.source not in where.writable
        while True:
            topic = self._random.choice(self._topics)
            for cluster in (*where.writable, *(where.left if moved or where.left else ())):
                yield self._alter(cluster, topic)
            if self._authorizer:
                yield from self._rules(where, topic)

    def _rules(self, where: Situation, topic: str) -> Iterator[Act]:
        number = next(self._numbers)
        made = [(cluster, _rule("ALLOW", f"User:app-{number}", topic)) for cluster in where.writable]
        denied = where.mirrored_to or where.writable
        made += [(cluster, _rule("DENY", f"User:guest-{number}", topic)) for cluster in denied]
        for cluster, binding in made:
            yield Act(cluster=cluster, f=F.ACL_CREATE, topic=topic, binding=binding)
        self._made.append([one for one in made if one[1].permission == "ALLOW"])
        if len(self._made) > _KEPT_ROUNDS:
            for cluster, binding in self._made.pop(0):
                yield Act(cluster=cluster, f=F.ACL_DELETE, topic=binding.name, binding=binding)

    def _alter(self, cluster: str, topic: str) -> Act:
        entries = {
            "retention.ms": str(self._random.randint(2, 60) * _DAY_MS + next(self._numbers)),  # never the same twice
            "max.message.bytes": str(self._random.randint(2 * _MIB, 4 * _MIB)),
        }
        return Act(cluster=cluster, f=F.ALTER_CONFIG, topic=topic, entries=entries)


def _rule(permission: str, principal: str, topic: str) -> Binding:
    return Binding(permission=permission, principal=principal, operation="READ", resource="TOPIC", name=topic)
