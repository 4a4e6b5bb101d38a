"""Names of mirrored topics: the name of a topic on A identifies it on every cluster, so that clusters can be joined."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from harness.history.runfile import RunMeta


def on_a(meta: RunMeta, cluster: Column | str, topic: Column | str) -> Column:
    """The name on A of the topic called `topic` on `cluster`."""
    return _renamed(cluster, topic, [(k, there, here) for k, here, there in _differing(meta)])


def on_cluster(meta: RunMeta, cluster: Column | str, origin: Column | str = "origin_topic") -> Column:
    """The name on `cluster` of the topic called `origin` on A: the inverse of `on_a`."""
    return _renamed(cluster, origin, _differing(meta))


def _differing(meta: RunMeta) -> list[tuple[str, str, str]]:
    """Cluster, name on A, name there, where they differ."""
    maps = {"B": dict(meta.topic_map), **{k: dict(v) for k, v in meta.topic_maps.items()}}
    return [(k, here, there) for k, names in maps.items() for here, there in names.items() if here != there]


def _renamed(cluster: Column | str, topic: Column | str, names: list[tuple[str, str, str]]) -> Column:
    """names: cluster, name, new name."""
    c = F.col(cluster) if isinstance(cluster, str) else cluster
    name = F.col(topic) if isinstance(topic, str) else topic
    if not names:
        return name
    entries = [F.lit(x) for k, old, new in names for x in (f"{k}\t{old}", new)]
    return F.coalesce(F.create_map(*entries)[F.concat_ws("\t", c, name)], name)
