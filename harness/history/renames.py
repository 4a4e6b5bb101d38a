"""Finds which topic of one cluster mirrors which topic of another, in imported histories where mirrors rename topics.

The history states it, or it is inferred: MirrorMaker 2 names the mirror of `t` on A `A.t`, or `east.t` where A
has that alias. A topic whose name ends in `.t` counts as the mirror of a topic `t` of another cluster when

- records of it hold values that were sent to `t` there; or
- its name is that cluster's letter, a dot and `t`, no client sends to it, and nothing that it holds was sent elsewhere;

and never where mirrors keep their names: where the other cluster has a topic of its full name, or its own cluster has a
`t` that is a mirror itself (it holds values that were sent to the other `t`; or, where no value decides, no client
sends to it).

It cannot see: a renaming by another rule, two mirrors of one topic on one cluster, one mirror of two topics; of a
topic's values only the first `SAMPLE` sent to it are compared. In such cases the history must state the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

SAMPLE: Final = 1_000
"""Values of one topic that are remembered, and records of one topic that are examined."""
SAMPLES: Final = 500_000
"""Values that are remembered in all."""
_ORIGIN: Final = "A"

Topic = tuple[str, str]
"""Cluster, name there."""


class RenameError(Exception):
    """A stated name contradicts an earlier one; the text completes the sentence "FILE, line N: …"."""


@dataclass(frozen=True)
class Renames:
    """For run.json: `topic_map` (name on A → name on B, of what is mirrored from A), `topic_maps` (all names, by
    cluster), and one sentence for each mirror that was inferred. All empty where no topic is renamed."""

    topic_map: dict[str, str] = field(default_factory=dict)
    topic_maps: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class TopicNames:
    """Collects the topics of a history; `renames` when all were seen."""

    def __init__(self) -> None:
        self._topics: dict[Topic, None] = {}
        self._sent: dict[Topic, int] = {}  # topics that clients send to → values remembered
        self._from: dict[str, Topic] = {}  # value → where it was sent first
        self._examined: dict[Topic, int] = {}  # topic → records examined
        self._holds: dict[Topic, set[Topic]] = {}  # and where the values in them were sent
        self._stated: dict[Topic, Topic] = {}  # mirror → what it mirrors

    def mentioned(self, cluster: str, topic: str) -> None:
        """The history mentions a topic."""
        self._topics[cluster, topic] = None

    def sent(self, cluster: str, topic: str, value: str | None) -> None:
        """A client sends a value to a topic."""
        place = (cluster, topic)
        known = self._sent.get(place)
        if known is None:
            self._topics[place] = None
            known = self._sent[place] = 0
        if known < SAMPLE and value is not None and len(self._from) < SAMPLES and value not in self._from:
            self._from[value] = place
            self._sent[place] = known + 1

    def shown(self, cluster: str, topic: str, value: str | None) -> None:
        """A record of a topic, read or in a log."""
        place = (cluster, topic)
        examined = self._examined.get(place)
        if examined is None:
            self._topics[place] = None
            examined = self._examined[place] = 0
        if examined < SAMPLE and value is not None:
            self._examined[place] = examined + 1
            origin = self._from.get(value)
            if origin is not None:
                self._holds.setdefault(place, set()).add(origin)

    def note_mirror(self, source: str, topic: str, cluster: str, name: str) -> None:
        """The history says that `name` on `cluster` mirrors `topic` on `source`. Raises RenameError."""
        origin, place = (source, topic), (cluster, name)
        if source == cluster:
            raise RenameError(
                f"expected a mirror of another cluster's topic, but {topic} and {name} are both on {cluster}"
            )
        before = self._stated.get(place, origin)
        if before != origin:
            raise RenameError(
                f"topic {name} on {cluster} cannot mirror {topic} on {source}: the history says that it mirrors"
                f" {before[1]} on {before[0]}, and a topic mirrors one topic"
            )
        other = next((p for p, o in self._stated.items() if o == origin and p[0] == cluster and p != place), None)
        if other is not None:
            raise RenameError(
                f"topic {topic} on {source} cannot have a second mirror {name} on {cluster}: the history names its"
                f" mirror {other[1]}, and a topic has one name on each cluster"
            )
        self._stated[place] = origin
        self._topics[origin] = self._topics[place] = None

    def renames(self) -> Renames:
        """The stated names, and those that can be inferred from names and values."""
        inferred = self._inferred()
        mirrors = {**inferred, **self._stated}
        if all(place[1] == origin[1] for place, origin in mirrors.items()):
            return Renames()
        names = {topic: self._name_on_a(topic, mirrors) for topic in self._topics}
        maps: dict[str, dict[str, str]] = {}
        for (cluster, topic), here in sorted(names.items()):
            if cluster != _ORIGIN:
                maps.setdefault(cluster, {})[here] = topic
        own = {topic for cluster, topic in self._topics if cluster == _ORIGIN and (cluster, topic) not in mirrors}
        return Renames(
            topic_map={here: there for here, there in maps.get("B", {}).items() if here in own},
            topic_maps=maps,
            notes=[_sentence(place, origin) for place, origin in sorted(inferred.items())],
        )

    def _inferred(self) -> dict[Topic, Topic]:
        found: dict[Topic, Topic] = {}
        taken = {(origin, place[0]) for place, origin in self._stated.items()}
        for says in (self._by_values, self._by_name):
            for place in sorted(self._topics):
                for origin in self._candidates(place):
                    new = place not in self._stated and place not in found and (origin, place[0]) not in taken
                    if new and says(place, origin):
                        found[place] = origin
                        taken.add((origin, place[0]))
        return found

    def _candidates(self, place: Topic) -> Iterator[Topic]:
        """Topics of other clusters whose names this one's name ends with, and whose mirrors may have this name."""
        cluster, name = place
        ends = [name[at + 1 :] for at, letter in enumerate(name) if letter == "."]
        others = sorted({c for c, _ in self._topics} - {cluster})
        for origin in ((other, end) for end in ends for other in others):
            if origin in self._topics and origin not in self._held(cluster, origin[1]):
                yield origin

    def _held(self, cluster: str, topic: str) -> set[Topic]:
        return self._holds.get((cluster, topic), set())

    def _by_values(self, place: Topic, origin: Topic) -> bool:
        keeps = (origin[0], place[1])  # the topic it mirrors if mirrors keep their names
        held = self._held(*place)
        named = place[1] == f"{origin[0]}.{origin[1]}"
        return origin in held and (keeps not in self._topics or (named and keeps not in held))

    def _by_name(self, place: Topic, origin: Topic) -> bool:
        (cluster, name), (source, topic) = place, origin
        if name != f"{source}.{topic}" or place in self._sent or self._held(*place):
            return False
        there = (cluster, topic)  # a topic of its own, if a client sends to it; else it may be the mirror
        return (source, name) not in self._topics and (there not in self._topics or there in self._sent)

    def _name_on_a(self, topic: Topic, mirrors: Mapping[Topic, Topic]) -> str:
        """A topic's name on A; for one that A does not have, the name that it would have."""
        passed = set()
        while topic in mirrors and topic not in passed:
            passed.add(topic)
            topic = mirrors[topic]
        cluster, name = topic
        if cluster == _ORIGIN:
            return name
        back = next((place for place, origin in mirrors.items() if origin == topic and place[0] == _ORIGIN), None)
        if back is not None:
            return back[1]
        # Its own topic of that name: where mirrors are renamed, it is not A's.
        others = [p for p, origin in mirrors.items() if p[0] == cluster and origin[1] == name and p[1] != name]
        return f"{cluster}.{name}" if others else name


def _sentence(place: Topic, origin: Topic) -> str:
    return (
        f"topic {place[1]} on {place[0]} is taken for the mirror of {origin[1]} on {origin[0]}, by its name and its"
        " records; a line of f topic_map would state it"
    )
