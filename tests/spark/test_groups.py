"""Groups: planted faults of each kind and their clean twins. The topic and group of a case have the same name."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from stories import STRICT, Story, judged


def mirrored(h: Story, name: str, *, carried: int, sent: int = 10) -> None:
    """`sent` values on A, of which B holds the first `carried`."""
    h.send(f"p {name}", "A", name, 0, *(f"{name}/v{i}" for i in range(sent)), offset=0)
    look(h, name, carried)


def look(h: Story, name: str, carried: int, *local: str) -> None:
    """B's log: the first mirrored values, then local ones."""
    values = [f"{name}/v{i}" for i in range(carried)] + [f"{name}/{v}" for v in local]
    number = sum(r["topic"] == name for r in h.tables.get("log_ends", []))
    h.log("B", name, 0, *enumerate(values), look=number)


def reads(h: Story, name: str, start: int, *values: str) -> None:
    h.poll(f"c {name}", "B", name, 0, *((start + i, f"{name}/{v}") for i, v in enumerate(values)), group=name)


def test_positions(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)
    # Past the end, and only a snapshot follows.
    mirrored(h, "over", carried=5)
    h.sync("over", 6, source_offset=6)
    look(h, "over", 5)
    # Past the end at the sync; local writes raise the end above it before the group arrives.
    mirrored(h, "lifted", carried=7)
    h.commit("lifted", "A", 10, processed=9)
    h.sync("lifted", 8, source_offset=10)
    h.send("q1", "B", "lifted", 0, "lifted/w0", "lifted/w1", offset=7)
    reads(h, "lifted", 8, "w1")
    look(h, "lifted", 7, "w0", "w1")
    # The same, clamped.
    mirrored(h, "clamped", carried=7)
    h.commit("clamped", "A", 10, processed=9)
    h.sync("clamped", 7, source_offset=10)
    h.send("q2", "B", "clamped", 0, "clamped/w0", "clamped/w1", offset=7)
    reads(h, "clamped", 7, "w0", "w1")
    look(h, "clamped", 7, "w0", "w1")
    # At the time of the sync the mirror was further than the snapshot before it shows.
    mirrored(h, "growing", carried=3)
    h.sync("growing", 5, source_offset=5)
    look(h, "growing", 7)
    # Below the log start.
    h.log("B", "below", 0, log_start=5, log_end=9)
    h.sync("below", 3, source_offset=3)
    # A reset to the latest offset: the poll has only its position.
    mirrored(h, "reset", carried=4, sent=4)
    h.commit("reset", "A", 2)
    h.sync("reset", 2, source_offset=2)
    position = {"action": "position", "topic": "reset", "partition": 0, "offset": 4}
    h.event("c reset", "ok", "poll", [position], cluster="B", group="reset", reset="latest")
    # Share groups.
    mirrored(h, "shared", carried=4, sent=4)
    h.sync("shared", 9, source_offset=9, kind="share")
    look(h, "shared", 4)
    assert judged(spark, h, tmp_path / "run") == [
        ("group_out_of_range", "sync", "B", "below", 3, None),
        ("group_out_of_range", "sync", "B", "lifted", 8, None),
        ("group_out_of_range", "sync", "B", "over", 6, None),
        ("group_skip", None, "B", "lifted", 7, "lifted/w0"),
        ("group_skip", None, "B", "reset", 2, "reset/v2"),
        ("group_skip", None, "B", "reset", 3, "reset/v3"),
        ("share_group", "range", "B", "shared", 9, None),
    ]


def test_rewinds_and_translations(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)
    for name, synced in (("far", 2), ("near", 8)):
        mirrored(h, name, carried=10)
        for offset in (2, 4, 6, 8, 10):
            h.commit(name, "A", offset)
        h.sync(name, synced, source_offset=synced)
        reads(h, name, synced, *(f"v{i}" for i in range(synced, 10)))
    # It moves before the mirror is stopped, and before the next periodic sync.
    mirrored(h, "early", carried=10)
    h.commit("early", "A", 2)
    h.sync("early", 2, source_offset=2)
    for offset in (4, 6, 8, 10):
        h.commit("early", "A", offset)
    reads(h, "early", 2, *(f"v{i}" for i in range(2, 10)))
    # MirrorMaker's copies are at lower offsets on B: v4 … v9 of A at 0 … 5 of B.
    for name, offset in (("true", 3), ("ahead", 4)):
        h.send(f"p {name}", "A", name, 0, *(f"{name}/v{i}" for i in range(10)), offset=0)
        h.log("B", name, 0, *((i - 4, f"{name}/v{i}") for i in range(4, 10)))
        h.sync(name, offset, event="checkpoint", source_offset=7)
    h.log("B", "back", 0, log_start=0, log_end=50)
    for source, offset in ((10, 9), (20, 15), (20, 12), (5, 4)):
        h.sync("back", offset, event="checkpoint", source_offset=source)
    assert judged(spark, h, tmp_path / "run") == [
        ("checkpoint_rewind", "ahead", "B", "ahead", 4, "ahead/v7"),
        ("checkpoint_rewind", "back", "B", "back", 12, None),
        ("group_rewind", None, "B", "far", 2, None),
    ]


def test_a_stop_has_to_sync_what_was_committed_until_then(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)
    mirrored(h, "late", carried=10)
    h.commit("late", "A", 2)
    h.sync("late", 2, source_offset=2)
    for offset in (4, 6, 8, 10):
        h.commit("late", "A", offset)
    for kind in ("invoke", "ok"):
        h.event("nemesis", kind, "mirror_stop", cluster="B")
    reads(h, "late", 2, *(f"v{i}" for i in range(2, 10)))
    assert judged(spark, h, tmp_path / "run") == [("group_rewind", None, "B", "late", 2, None)]


def test_commits(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)
    for name, steps in {
        "lost": ((30, "ok"), (50, "ok"), 30),
        "gone": ((50, "ok"), None),
        "kept": ((30, "ok"), (50, "ok"), 50),
        "sought": ((50, "ok"), (30, "ok"), 30),
        "unsought": ((50, "ok"), (30, "ok"), 50),
        "undecided": ((50, "ok"), (30, "info"), 30),
        "failed": ((50, "ok"), (30, "fail"), 30),
        "foreign": ((50, "ok"), 70),
        "nobody's": (None,),
    }.items():
        for step in steps:
            if isinstance(step, tuple):
                h.commit(name, "A", step[0], end=step[1])
            else:
                h.fetch(name, "A", step)
    # A snapshot is a fetch too; a commit that overlaps another may come second.
    h.commit("seen", "A", 50)
    h.sync("seen", 40, event="look", cluster="A")
    # A fetch that was invoked before the commit was acknowledged need not return it.
    began = h.now
    h.commit("asked", "A", 50)
    h.sync("asked", 40, event="look", cluster="A", began_ns=began)
    place = {"action": "commit", "topic": "race", "partition": 0}
    first = h.event("x", "invoke", "commit_offset", [{**place, "offset": 30}], cluster="A", group="race")
    h.commit("race", "A", 50)
    h.event("x", "ok", "commit_offset", [{**place, "offset": 30}], cluster="A", group="race", invoke_index=first)
    h.fetch("race", "A", 50)
    # A mirror's sync counts as a later commit.
    h.commit("synced", "B", 50)
    h.sync("synced", 60)
    h.fetch("synced", "B", 60)
    assert judged(spark, h, tmp_path / "run") == [
        ("commit_lost", None, "A", "failed", 50, None),
        ("commit_lost", None, "A", "gone", 50, None),
        ("commit_lost", None, "A", "lost", 50, None),
        ("commit_lost", None, "A", "seen", 50, None),
        ("commit_lost", None, "A", "unsought", 30, None),
    ]


def test_groups_at_work_on_the_destination(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)
    for name, leaves in (("polling", False), ("left", True)):
        h.poll(f"c {name}", "B", name, 0, (0, f"{name}/v0"), group=name)
        if leaves:
            h.event(f"c {name}", "ok", "crash", cluster="B")
        h.sync(name, 5, source_offset=5)
        h.poll(f"c {name}", "B", name, 0, (1, f"{name}/v1"), group=name)
    h.sync("members", 5, members=2)
    h.sync("empty", 5, members=0)
    for name, offset in (("behind", 10), ("forward", 20)):
        h.state(name, "STOPPED", event="stop")
        h.commit(name, "B", 15)
        h.sync(name, offset, source_offset=offset)
    assert judged(spark, h, tmp_path / "run") == [
        ("group_overwritten", "active", "B", "members", 5, None),
        ("group_overwritten", "active", "B", "polling", 5, None),
        ("group_overwritten", "behind", "B", "behind", 10, None),
    ]


def test_groups_of_a_real_run(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(
        source="shatter",
        clusters={"A": {}, "B": {}},
        test={"contract": "cluster-mirror/strict", "mirror_options": {"groups.exclude": "internal-.*"}},
        capabilities={"group_offsets": {"yes": True}},
        topic_map={name: name for name in ("there", "absent", "late", "internal-x")},
        phases=[{"name": "settle", "start_ns": 1_000}, {"name": "evidence", "start_ns": 2_000}],
    )
    h.send("p", "A", "there", 0, "v", offset=0)
    for name in ("there", "absent", "elsewhere"):
        h.sync(name, 5, event="look", cluster="A")
    h.sync("internal-x", 5)
    h.sync("late", 5, event="look", cluster="A", time_ns=1_500)
    h.row(
        "log_ends", cluster="B", topic="there", partition=0, broker=1, leader=1, log_start=0, log_end=4, time_ns=2_010
    )
    h.sync("there", 5, event="look", time_ns=2_020)
    assert judged(spark, h, tmp_path / "run") == [
        ("group_out_of_range", "look", "B", "there", 5, None),
        ("group_overwritten", "filter", "B", "internal-x", 5, None),
        ("group_overwritten", "missing", "A", "absent", 5, None),
    ]


def test_where_nothing_was_processed_there_is_nothing_to_translate(spark: SparkSession, tmp_path: Path) -> None:
    names = ("idle", "moved", "aborted")
    h = Story(
        source="shatter",
        clusters={"A": {}, "B": {}},
        test={"contract": "mm2-at-least-once"},
        capabilities={"group_offsets": {"yes": True}},
        topic_map={name: name for name in names},
        phases=[{"name": "settle", "start_ns": 10_000}],
    )
    for name in names:
        h.send(f"p {name}", "A", name, 0, f"{name}/v3", f"{name}/v4", offset=3)
        h.log("A", name, 0, (3, f"{name}/v3"), (4, f"{name}/v4"), log_start=3)
    for name in ("idle", "moved"):
        h.log("B", name, 0, (0, f"{name}/v3"), (1, f"{name}/v4"))
    h.log("B", "aborted", 0, (0, "aborted/v4"))  # v3 was not mirrored, so a group at v4 has no translation
    h.sync("aborted", 4, event="look", cluster="A")
    h.sync("idle", 3, event="look", cluster="A")
    h.sync("moved", 4, event="look", cluster="A")
    assert judged(spark, h, tmp_path / "run") == [("group_overwritten", "missing", "A", "moved", 4, None)]


def test_offsets_that_change_after_the_stop_though_nobody_uses_the_group(spark: SparkSession, tmp_path: Path) -> None:
    """Snapshots of a native mirror's destination: nothing else records what its brokers write. `silent` stays, `used`
    has a consumer there, `again` is mirrored again before it changes."""
    names = ("silent", "written", "used", "again")
    h = Story(clusters={"A": {}, "B": {}}, topic_map={name: name for name in names})
    for name in names:
        h.state(name, "MIRRORING")
        h.sync(name, 3, event="look")
        h.state(name, "STOPPED", event="stop")
        h.sync(name, 4, event="look", members=0)
    h.state("again", "MIRRORING", event="start")
    h.poll("c", "B", "used", 0, (4, "v"), group="used")
    for name in names:
        h.sync(name, 4 if name == "silent" else 6, event="look", members=0)
    found = [row for row in judged(spark, h, tmp_path / "run") if row[0] == "group_overwritten"]
    assert found == [("group_overwritten", "stopped", "B", "written", 6, None)]
