"""Access rules, topic configurations and names: planted faults of each kind and their clean twins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from stories import STRICT, Story, judged


def acl(h: Story, event: str, cluster: str, *bindings: str, actor: str | None = "admin") -> None:
    """A change of one binding, or a snapshot that shows exactly these."""
    h.at("acls", event=event, cluster=cluster, binding=bindings[0], actor=None if event == "look" else actor)
    for binding in bindings[1:]:
        h.row("acls", event=event, cluster=cluster, binding=binding)


def test_bindings(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)
    for name in ("DENY lost", "DENY kept", "deleted", "taken", "removed"):
        acl(h, "create", "B", name)
    acl(h, "create", "A", "carried")
    acl(h, "create", "A", "followed")
    acl(h, "create", "A", "touched")
    acl(h, "create", "A", "removed")
    acl(h, "look", "A", "carried", "followed", "touched", "removed")
    acl(h, "look", "B", "DENY lost", "DENY kept", "deleted", "taken", "removed", "carried", "followed", "touched")
    acl(h, "delete", "B", "deleted")
    acl(h, "delete", "B", "taken", actor="mirror")
    for name in ("carried", "followed", "removed"):
        acl(h, "delete", "A", name)
    acl(h, "look", "A", "touched")
    acl(h, "look", "B", "DENY kept", "carried")
    # Deleted on A and created again: B follows in between, even if a late snapshot shows it.
    acl(h, "create", "A", "again")
    acl(h, "look", "B", "DENY kept", "carried", "again")
    acl(h, "delete", "A", "again")
    acl(h, "look", "B", "DENY kept", "carried")
    acl(h, "create", "A", "again")
    acl(h, "look", "B", "DENY kept", "carried", "again")
    assert judged(spark, h, tmp_path / "run") == [
        ("acl_lost", "local", "B", None, None, "DENY lost"),
        ("acl_lost", "local", "B", None, None, "taken"),
        ("acl_lost", "local", "B", None, None, "touched"),
        ("acl_lost", "stale", "B", None, None, "carried"),
    ]


def test_mirrors_may_delete_only_rules_that_mirrors_created(spark: SparkSession, tmp_path: Path) -> None:
    """A mirror may delete the rule that keeps clients from its own topic, after a failback too, but no other rule."""
    h = Story(**STRICT)
    acl(h, "look", "A", "ALLOW seen")
    for cluster, mirror in (("B", "mirror A-B"), ("A", "mirror B-A")):
        acl(h, "create", cluster, "DENY guard", actor=mirror)
        if cluster == "B":
            acl(h, "create", cluster, "ALLOW seen", actor=mirror)
        acl(h, "look", cluster, "DENY guard", "ALLOW seen")
        acl(h, "delete", cluster, "DENY guard", actor=mirror)
        acl(h, "look", cluster, "ALLOW seen")
    acl(h, "delete", "B", "ALLOW seen", actor="mirror A-B")
    h.at("acls", event="look", cluster="B", binding=None)
    assert judged(spark, h, tmp_path / "run") == [("acl_lost", "local", "B", None, None, "ALLOW seen")]


def test_a_mirror_back_follows_its_source(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)
    h.row("mirror_states", cluster="A", topic="t", partition=0, state="MIRRORING", mirror="B-A")
    acl(h, "create", "B", "carried")
    acl(h, "create", "A", "DENY local")
    acl(h, "create", "A", "carried", actor="mirror B-A")
    acl(h, "look", "A", "DENY local", "carried")
    acl(h, "delete", "B", "carried")
    acl(h, "delete", "A", "carried", actor="mirror B-A")
    acl(h, "look", "A", "DENY local")
    assert judged(spark, h, tmp_path / "run") == []


def test_after_the_stop(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)

    def config(
        topic: str, value: str, event: str = "look", actor: str | None = None, name: str = "retention.ms"
    ) -> None:
        h.at("configs", cluster="B", topic=topic, event=event, actor=actor, name=name, value=value)

    topics = ("reverted", "set", "mirror's", "steady")
    for topic in topics:
        config(topic, "100")  # before the stop the source's values are synced
        config(topic, "200")
        h.state(topic, "MIRRORING")
        h.state(topic, "STOPPED", event="stop")
    acl(h, "look", "B", "old")
    for topic in topics:
        config(topic, "200")
    config("reverted", "900", "alter", "admin")
    config("reverted", "200")
    config("set", "900", "alter", "admin")
    config("set", "900")
    config("mirror's", "5", "alter", "mirror", name="max.message.bytes")
    config("steady", "200")
    acl(h, "create", "B", "made")
    acl(h, "look", "B", "old", "made", "came")
    # A topic that is still mirrored may change.
    assert judged(spark, h, tmp_path / "run") == [
        ("acl_lost", "appeared", "B", None, None, "came"),
        ("config_reverted", "other", "B", "mirror's", None, "max.message.bytes"),
        ("config_reverted", "retention", "B", "reverted", None, "retention.ms"),
    ]


def test_while_mirrored_everything_may_change(spark: SparkSession, tmp_path: Path) -> None:
    h = Story(**STRICT)
    h.state("t", "MIRRORING")
    row: dict[str, Any] = {"cluster": "B", "topic": "t", "event": "look", "name": "retention.ms"}
    h.at("configs", value="100", **row)
    h.at("configs", value="200", **row)
    acl(h, "look", "B", "old")
    acl(h, "look", "B", "old", "came")
    names = {"cluster": "B", "surface": "list"}
    h.at("mirror_names", principal="User:admin", entitled=True, mirror="m", **names)
    h.at("mirror_names", principal="User:carol", entitled=False, mirror=None, **names)
    h.at("mirror_names", principal="User:alice", entitled=False, mirror="m", **names)
    assert judged(spark, h, tmp_path / "run") == [("name_leak", None, "B", None, None, "m")]
