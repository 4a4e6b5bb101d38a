"""Stories of mirrors that rename topics: MirrorMaker 2's `A.t`, another alias, recorded names, and topics that only
look renamed."""

from __future__ import annotations

from jsonl_story import Lines, Pack

RENAMED = Pack("mm2-at-least-once")
ONCE = Pack("mm2-exactly-once")
STRICT = Pack("cluster-mirror/strict")
VALUES = ("v0", "v1", "v2", "v3")


def carried(h: Lines, mirror: str, fault: bool, *, lost: str = "v1", read: bool = True) -> None:
    """Records sent to t on A are in `mirror` on B; with the fault one is missing though later ones are there."""
    h.send("A", *VALUES, at=0)
    h.dump("A", *enumerate(VALUES))
    there = list(enumerate(v for v in VALUES if not (fault and v == lost)))
    if read:
        h.poll("B", *there, topic=mirror)
    h.dump("B", *there, topic=mirror)


@RENAMED.story("mirror_loss")
def default_policy(h: Lines, fault: bool) -> None:
    """DefaultReplicationPolicy: the source's alias, a dot, the topic's name."""
    carried(h, "A.t", fault)


@RENAMED.story("mirror_loss")
def nobody_reads_the_mirror(h: Lines, fault: bool) -> None:
    """Only logs show what is in the mirror topic."""
    carried(h, "A.t", fault, read=False)


@RENAMED.story("mirror_loss")
def one_of_two_partitions(h: Lines, fault: bool) -> None:
    """Each partition of the mirror topic mirrors the partition of the same number."""
    for p in (0, 1):
        values = [f"w{p}{n}" for n in range(3)]
        h.send("A", *values, at=0, p=p)
        h.dump("A", *enumerate(values), p=p)
        kept = [v for v in values if not (fault and v == "w11")]
        h.poll("B", *enumerate(kept), p=p, topic="A.t")
        h.dump("B", *enumerate(kept), p=p, topic="A.t")


@RENAMED.story("mirror_loss")
def another_alias(h: Lines, fault: bool) -> None:
    """MirrorMaker 2's alias for A is `east`: the values show which topic it mirrors."""
    carried(h, "east.t", fault)


@RENAMED.story("mirror_loss")
def told_by_a_map(h: Lines, fault: bool) -> None:
    """A name that follows no rule is in a `topic_map`."""
    h.line("mirror", "info", "topic_map", cluster="B", source="A", value={h.topic("t"): h.topic("copied")})
    carried(h, "copied", fault)


@RENAMED.story("mirror_loss")
def told_by_the_mirror(h: Lines, fault: bool) -> None:
    """`mirror_start` names the source topic."""
    for p in (0, 1):
        place = {
            "cluster": "B",
            "topic": h.topic("copied"),
            "partition": p,
            "source": "A",
            "source_topic": h.topic("t"),
        }
        h.both("admin", "mirror_start", **place)
    carried(h, "copied", fault)


@RENAMED.story("mirror_loss")
def told_by_the_dump(h: Lines, fault: bool) -> None:
    """A dump names the source topic."""
    h.send("A", *VALUES, at=0)
    h.dump("A", *enumerate(VALUES))
    there = list(enumerate(v for v in VALUES if not (fault and v == "v1")))
    h.dump("B", *there, topic="copied", mirror_of="A", source_topic=h.topic("t"))


@RENAMED.story("lost_write/gone")
def users_topic_that_looks_so(h: Lines, fault: bool) -> None:
    """A topic of B's own clients is called A.t: it has nothing to do with t on A, and is judged as B's own."""
    h.send("A", *VALUES, at=0)
    h.dump("A", *enumerate(VALUES))
    own = ("x0", "x1", "x2", "x3")
    h.send("B", *own, at=0, topic="A.t", by="p2")
    kept = [(n, x) for n, x in enumerate(own) if not (fault and x == "x2")]
    h.dump("B", *kept, topic="A.t", leo=4)


@RENAMED.story("mirror_loss")
def written_to_by_clients_of_b_as_well(h: Lines, fault: bool) -> None:
    """MirrorMaker does not prevent clients from writing to its topics: A.t is still the mirror."""
    h.send("A", *VALUES, at=0)
    h.dump("A", *enumerate(VALUES))
    kept = [v for v in VALUES if not (fault and v == "v1")]
    h.send("B", "local", at=len(kept), topic="A.t", by="p2")
    h.poll("B", *enumerate([*kept, "local"]), topic="A.t")
    h.dump("B", *enumerate([*kept, "local"]), topic="A.t")


@RENAMED.story("mirror_loss")
def both_ways(h: Lines, fault: bool) -> None:
    """Active/active: t of A and t of B are two topics; each is mirrored to the other cluster under its own name."""
    own = ("b0", "b1", "b2", "b3", "b4")
    h.send("B", *own, at=0, by="p2")
    h.dump("B", *enumerate(own))
    carried(h, "A.t", fault)
    h.poll("A", *enumerate(own), topic="B.t")
    h.dump("A", *enumerate(own), topic="B.t")
    h.poll("B", *enumerate(own))


@RENAMED.story("misplaced", "mirror_loss")
def into_another_topics_mirror(h: Lines, fault: bool) -> None:
    """Two topics; a record of u is mirrored to the mirror of t, so it is missing from its own."""
    h.send("A", *VALUES, at=0)
    h.send("A", "u0", "u1", "u2", at=0, topic="u")
    h.dump("A", *enumerate(VALUES))
    h.dump("A", *enumerate(("u0", "u1", "u2")), topic="u")
    t, u = ([*VALUES, "u1"], ["u0", "u2"]) if fault else (list(VALUES), ["u0", "u1", "u2"])
    for topic, values in (("A.t", t), ("A.u", u)):
        h.poll("B", *enumerate(values), topic=topic)
        h.dump("B", *enumerate(values), topic=topic)


@RENAMED.story("mirror_loss")
def the_name_is_kept(h: Lines, fault: bool) -> None:
    """IdentityReplicationPolicy, and A has topics t and A.t: the mirrors have the same names."""
    h.send("A", *VALUES, at=0)
    h.send("A", "x0", "x1", "x2", at=0, topic="A.t")
    h.dump("A", *enumerate(VALUES))
    h.dump("A", *enumerate(("x0", "x1", "x2")), topic="A.t")
    h.poll("B", *enumerate(VALUES))
    h.dump("B", *enumerate(VALUES))
    kept = ["x0", "x2"] if fault else ["x0", "x1", "x2"]
    h.poll("B", *enumerate(kept), topic="A.t")
    h.dump("B", *enumerate(kept), topic="A.t")


@RENAMED.story("mirror_loss")
def one_renamed_one_not(h: Lines, fault: bool) -> None:
    """Two mirrors, one of which keeps names: each topic is judged."""
    carried(h, "A.t", False)
    h.send("A", "u0", "u1", "u2", at=0, topic="u")
    h.dump("A", *enumerate(("u0", "u1", "u2")), topic="u")
    kept = ["u0", "u2"] if fault else ["u0", "u1", "u2"]
    h.poll("B", *enumerate(kept), topic="u")
    h.dump("B", *enumerate(kept), topic="u")


@RENAMED.story("group_out_of_range/sync")
def a_group_of_the_mirror_topic(h: Lines, fault: bool) -> None:
    """KAFKA-12468 in a renamed topic: A's offset is synced untranslated."""
    h.send("A", *VALUES, at=500)
    h.dump("B", *enumerate(VALUES), topic="A.t")
    h.offsets("commit_offset", "A", 504)
    h.offsets("sync_group_offset", "B", 504 if fault else 4, topic="A.t", source_offset=504, by="mm2")
    h.dump("B", *enumerate(VALUES), topic="A.t")


@RENAMED.story("retention_gap")
def expired_before_it_was_carried(h: Lines, fault: bool) -> None:
    """apache/kafka#22248 in a renamed topic; in the twin everything was mirrored before it expired."""
    h.send("A", *(f"r{i}" for i in range(6)), at=10)
    h.dump("A", (14, "r4"), (15, "r5"), log_start=14)
    held = (0, 1, 4, 5) if fault else range(6)
    h.dump("B", *enumerate(f"r{v}" for v in held), topic="A.t")


@RENAMED.story("mirror_loss")
def along_a_chain(h: Lines, fault: bool) -> None:
    """B.A.t on C is the mirror of A.t on B, which is that of t on A."""
    carried(h, "A.t", False)
    kept = [v for v in VALUES if not (fault and v == "v2")]
    h.poll("C", *enumerate(kept), topic="B.A.t")
    h.dump("C", *enumerate(kept), topic="B.A.t")


@ONCE.story("mirror_duplicate", "duplicate")
def copied_twice(h: Lines, fault: bool) -> None:
    """After a restart, an exactly-once mirror writes a record again."""
    h.send("A", "v0", "v1", at=0)
    h.dump("A", (0, "v0"), (1, "v1"))
    again = [(2, "v1")] if fault else []
    h.dump("B", (0, "v0"), (1, "v1"), *again, topic="A.t")


@STRICT.story("offset_identity", "gap_identity")
def offsets_of_a_renamed_topic(h: Lines, fault: bool) -> None:
    """A strict mirror keeps offsets also where it renames topics."""
    h.send("A", *VALUES, at=7)
    h.dump("A", *((7 + n, v) for n, v in enumerate(VALUES)), log_start=7)
    h.dump(
        "B",
        *(((8 if fault else 7) + n, v) for n, v in enumerate(VALUES)),
        topic="A.t",
        log_start=7,
        leo=12 if fault else 11,
    )
