"""What a mirror syncs in addition to records: consumer and share group offsets, ACLs, topic configurations."""

from __future__ import annotations

from model.world import IDLE, Actor, World


class Syncs:
    """The sync tasks of one example's mirror. `active`: groups that have members on B, which are left alone."""

    def __init__(self, world: World) -> None:
        self.w = world
        self.active: set[str] = set()
        self.stopped = False

    def run(self) -> Actor:
        """Sync everything from time to time until stopped."""
        while not self.stopped:
            yield IDLE
            if self.w.link:
                self.all()

    def all(self) -> None:
        """One round."""
        self.w.book.tick()
        self.groups()
        self._acls()
        self._configs()

    def groups(self) -> None:
        """Offsets, clamped into B's log, of groups without members there."""
        kinds = (
            ("consumer", self.w.a.committed, self.w.b.committed),
            ("share", self.w.a.share_starts, self.w.b.share_starts),
        )
        for kind, here, there in kinds:
            for (group, number), offset in here.items():
                part = self.w.b.partitions[number]
                clamped = max(part.start, min(offset, part.end))
                if group in self.active or there.get((group, number)) == clamped:
                    continue
                there[group, number] = clamped
                self.w.book.row(
                    "group_offsets",
                    cluster="B",
                    group=group,
                    kind=kind,
                    event="sync",
                    state="Empty",
                    members=0,
                    topic=part.topic,
                    partition=number,
                    offset=clamped,
                    source_offset=offset,
                )

    def _acls(self) -> None:
        mirrored = {b for b in self.w.b.acls if not b.startswith("DENY")}
        for binding in sorted(self.w.a.acls - mirrored):
            self.w.b.acls.add(binding)
            self.w.book.row("acls", cluster="B", event="create", actor="mirror", binding=binding)
        for binding in sorted(mirrored - self.w.a.acls):
            self.w.b.acls.discard(binding)
            self.w.book.row("acls", cluster="B", event="delete", actor="mirror", binding=binding)

    def _configs(self) -> None:
        for name, value in self.w.a.configs.items():
            if self.w.b.configs.get(name) != value:
                self.w.b.configs[name] = value
                self.w.book.row(
                    "configs", cluster="B", event="alter", actor="mirror", topic=self.w.b.topic, name=name, value=value
                )


def administrator(world: World, letter: str) -> Actor:
    """Creates and deletes access rules and alters configurations of one cluster from time to time."""
    cluster = world.a if letter == "A" else world.b
    verb = "ALLOW" if letter == "A" else "DENY"
    while True:
        yield IDLE
        if not world.chance(0.3):
            continue
        book = world.book
        book.tick()
        binding = f"{verb} User:{book.name(world.rng.choice(('alice', 'bob')))} WRITE TOPIC:{cluster.topic}"
        if binding in cluster.acls:
            cluster.acls.discard(binding)
            book.row("acls", cluster=letter, event="delete", actor="admin", binding=binding)
        else:
            cluster.acls.add(binding)
            book.row("acls", cluster=letter, event="create", actor="admin", binding=binding)
        if letter == "A" or world.cuts:
            value = str(world.rng.choice((604_800_000, 864_000_000, 1_209_600_000)))
            cluster.configs["retention.ms"] = value
            row = {"topic": cluster.topic, "name": "retention.ms", "value": value}
            book.row("configs", cluster=letter, event="alter", actor="admin", **row)
