"""One example from its plan: all phases, in the order of a real run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from model import objects, trouble
from model.book import Rows
from model.consumers import Member, Reader, ShareMember, read_to_the_end
from model.failback import Failback
from model.looks import Observer
from model.mirror import ClusterMirror
from model.mm2 import Mm2, Translations, restarts
from model.mm2_exactly_once import ExactlyOnce
from model.plan import Plan
from model.producers import Sender
from model.recreated import Recreated
from model.syncs import Syncs, administrator
from model.transactions import TxnSender
from model.world import Actor, Cluster, World

STEPS = 40


@dataclass
class Example:
    """A history with its evidence. prefix: of every name in it. tolerated: kinds that it shows by design: what a
    contract allows, or what cannot be decided."""

    plan: Plan
    prefix: str
    tables: Rows
    world: World = field(repr=False)
    tolerated: frozenset[str] = frozenset()

    @property
    def topic(self) -> str:
        """Its topic; the same name on both clusters."""
        return self.world.a.topic


def simulate(
    plan: Plan, number: int = 0, *, letter: str = "e", before_final: Callable[[World], None] | None = None
) -> Example:
    """The example of a plan. `number` and `letter` only name it: they do not change what happens.
    before_final: is called with the world right before the final reads."""
    prefix = f"{letter}{number:04d}-"
    world = World(plan, prefix)
    _Run(world, before_final).all()
    tolerated = frozenset(
        ({"cross_partition"} if split_by_the_stop(world) else set())
        | ({"unseen"} if untold_and_expired(world) else set())
    )
    return Example(plan, prefix, world.book.tables, world, tolerated)


def transaction_names(world: World) -> dict[str, str | None]:
    """Value → name of the transaction that it was sent in."""
    names = {op["index"]: op.get("txn") for op in world.book.tables["ops"] if op["f"] in ("send", "txn")}
    sent = [r for r in world.book.tables["op_records"] if r["action"] == "send"]
    return {r["value"]: names[r["op_index"]] for r in sent if r["op_index"] in names}


def split_by_the_stop(world: World) -> bool:
    """Whether some transaction is below the cut of one partition and not below that of another."""
    sides: dict[str, set[bool]] = {}
    names = {op["index"]: op.get("txn") for op in world.book.tables["ops"] if op["cluster"] == "A"}
    for row in world.book.tables["op_records"]:
        txn = names.get(row["op_index"])
        if txn is not None and row["action"] == "send" and row.get("offset") is not None and world.cuts:
            sides.setdefault(txn, set()).add(row["offset"] < world.cuts[row["partition"]])
    return any(len(found) > 1 for found in sides.values())


def _mirror(world: World) -> ClusterMirror:
    if world.plan.exactly_once:
        return ExactlyOnce(world)
    return Mm2(world) if world.plan.mirror == "mm2" else ClusterMirror(world, world.a, world.b)


def untold_and_expired(world: World) -> bool:
    """Whether a record was acknowledged without its offset in a partition whose log does not begin at 0: whether it
    expired is then unknown."""
    expired = {(c.letter, p.number) for c in (world.a, world.b) for p in c.partitions if p.start > 0}
    acked = {op["index"]: op["cluster"] for op in world.book.tables["ops"] if op["f"] == "send" and op["type"] == "ok"}
    return any(
        row["op_index"] in acked and row.get("offset") is None and (acked[row["op_index"]], row["partition"]) in expired
        for row in world.book.tables["op_records"]
    )


class _Run:
    """The phases of one example."""

    def __init__(self, world: World, before_final: Callable[[World], None] | None) -> None:
        self.w = world
        self.before_final = before_final
        self.plan = world.plan
        self.mirror = _mirror(world)
        self.syncs = Translations(world, self.mirror) if isinstance(self.mirror, Mm2) else Syncs(world)
        self.watch = world.observer = Observer(world, self.mirror)
        world.book.before = self.watch.until
        self.on_a: list[Reader] = []
        self.on_b: list[Reader] = []
        self.reading_b: list[Actor] = []
        self.zombie: Actor = iter(())

    def all(self) -> None:
        """From the start of the mirror to the evidence."""
        self.w.run([], phase="warm_up", steps=0)
        self.mirror.start()
        self._load()
        self._heal()
        self._settle()
        if self.plan.scenario != "steady":
            self._failover()
        self.watch.until(70 * 10**9 - 1)
        if self.before_final is not None:
            self.before_final(self.w)
        self.w.run([], phase="final", steps=0)
        for cluster in self.w.clusters:
            read_to_the_end(self.w, cluster)
        self.watch.until(81 * 10**9)
        self.watch.evidence()
        if self.plan.whole_log and self.plan.objects:
            objects.store(self.w, transaction_names(self.w))

    def _producers(self, cluster: Cluster) -> list[Actor]:
        found: list[Actor] = []
        for kind in self.plan.producers:
            if kind in ("txn", "steps"):
                found.append(TxnSender(self.w, cluster, steps=kind == "steps").run())
            else:
                found.append(Sender(self.w, cluster, idempotent=kind == "idempotent").run())
        return found

    def _load(self) -> None:
        w, plan = self.w, self.plan
        committed_b = plan.on_stop == "truncate"  # others would see what the stop truncates
        for n in range(plan.consumers):
            self.on_a.append(Reader(w, w.a, committed=n % 2 == 1))
            if not plan.unclean:  # B's readers may have read records that A then lost
                self.on_b.append(Reader(w, w.b, committed=committed_b or n % 2 == 1))
        for n in range(plan.groups):
            self.on_a.append(Member(w, w.a, committed=n % 2 == 0, group=w.book.name(f"g{n}")))
        if plan.share:
            self.on_a.append(ShareMember(w, w.a, committed=True, group=w.book.name("s")))
        actors = self._producers(w.a)
        self.reading_b = [r.run() for r in self.on_b]
        actors += [r.run() for r in self.on_a] + self.reading_b
        if plan.recreated:
            w.recreated = again = Recreated(w)
            actors.append(again.run())
        actors += [self.mirror.run(), self.mirror.run(), self.syncs.run()]
        w.run(actors + self._trouble(), phase="load", steps=STEPS + 8 * plan.sends, drain=False)
        for actor in actors:
            self._rest(actor)
        self.actors = actors
        if plan.zombie:
            self.zombie = TxnSender(w, w.a, steps=False).leave_open()
            next(self.zombie)

    def _rest(self, actor: Actor) -> None:
        while next(actor, True) is False:
            self.w.book.tick()

    def _trouble(self) -> list[Actor]:
        w, kinds = self.w, self.plan.trouble
        made: dict[str, list[Actor]] = {
            "elections": [trouble.elections(w)],
            "deaths": [trouble.deaths(w)],
            "unclean": [trouble.unclean(w)],
            "link": [trouble.link_cuts(w)],
            "expiry": [trouble.expiry(w)],
            "pauses": [restarts(w, self.mirror) if isinstance(self.mirror, Mm2) else trouble.pauses(w, self.mirror)],
        }
        found = [actor for kind in kinds for actor in made[kind]]
        if self.plan.access:
            found += [administrator(w, "A"), administrator(w, "B")]
        if self.plan.compacted:
            found += [trouble.cleaner(w, w.a), trouble.cleaner(w, w.b)]
        self.troubles = found
        return found

    def _heal(self) -> None:
        self.w.run([], phase="heal", steps=0)
        for actor in self.troubles:  # pending operations complete
            self._rest(actor)
        trouble.heal(self.w, self.mirror)
        self.w.settle_late_requests()
        for part in self.w.a.partitions:
            part.replicate()
        self.mirror.refresh()
        for a, b in zip(self.w.a.partitions, self.w.b.partitions, strict=True):
            if self.plan.mirror == "cluster":
                b.epoch = max(a.epoch, b.epoch)

    def _settle(self) -> None:
        steady = self.plan.scenario == "steady"
        self.w.run(self.actors[-3:], phase="settle", steps=6)
        if steady or (not self.plan.lagging and self.w.chance(0.4)):
            self.mirror.catch_up()
        if steady:
            self._rest(self.zombie)
            self.mirror.catch_up()
        self.syncs.all()
        self.watch.until(55 * 10**9 - 1)

    def _failover(self) -> None:
        w = self.w
        w.run([], phase="scenario", steps=0)
        w.book.tick(200_000_000)
        for reader in self.on_a:
            reader.stopped = True
        self.mirror.stop()
        self.syncs.groups()
        self.syncs.stopped = True
        self._rest(self.zombie)
        moved: list[Reader] = []
        for reader in self.on_a:
            if isinstance(reader, Member | ShareMember) and reader.group and w.chance(0.8):
                self.syncs.active.add(reader.group)
                kind = Member if isinstance(reader, Member) else ShareMember
                moved.append(kind(w, w.b, committed=reader.committed, group=reader.group))
        w.budget = self.plan.sends // 2
        actors = self._producers(w.b) + self.reading_b
        actors += [r.run() for r in moved]
        if self.plan.access:
            actors += [administrator(w, "B")]
        if self.plan.scenario == "failover" and w.chance(0.3):  # a client still writes to the old source
            actors += self._producers(w.a)
        steps = STEPS // 2 + 5 * self.plan.sends
        if self.plan.scenario == "failback":
            back = self._failback(actors, steps)
            w.run([*actors, back.run()], phase="scenario", steps=steps // 2)
            w.settle_late_requests()
            back.catch_up()
        else:
            w.run(actors, phase="scenario", steps=steps)
            w.settle_late_requests()
        for cluster in (w.a, w.b):
            for part in cluster.partitions:
                part.replicate()

    def _failback(self, actors: list[Actor], steps: int) -> Failback:
        """Go on for a while, then mirror from B to A; B stays open to writers."""
        w = self.w
        w.run(actors, phase="scenario", steps=steps // 2)
        for part in w.b.partitions:
            part.replicate()
        back = Failback(w)
        w.failback = back
        back.begin()
        return back
