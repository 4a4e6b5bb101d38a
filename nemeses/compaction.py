"""`compaction`: the source's cleaner leaves gaps in offsets that its mirror has not read yet.

The mirror's link to the source is cut until the cleaner of the source has removed records after everything that the
mirror can have. It proves: requests do not pass the link, and a read of the source from there on shows offsets without
a record. It needs topics with cleanup.policy=compact (`--cleanup-policy compact`) that are written to with few keys.
It cannot see: gaps below the mirror's reach, which are there as well after a while.
"""

from __future__ import annotations

from harness.core.errors import ClusterError
from harness.topology.topology import Topology
from nemeses.base import Availability, Bite, FaultContext, FaultSpec, Injected, Timing
from nemeses.support.cut_off import SOURCE, CutOff, SourceCutOff, cut_off, first_gap, names
from nemeses.support.direct import topic_setting
from nemeses.support.link_targets import LINK_NEEDS, links_available

_CLEANED_S = 20.0


class Compaction(SourceCutOff):
    """See the module."""

    name = "compaction"
    description = (
        "let the source's cleaner leave gaps in offsets that the mirror has not read, while its link to it is cut"
    )
    needs = f"{LINK_NEEDS}, and compacted topics"
    timing = Timing(least_s=1, most_s=4, settle_s=4)
    color = "#bab0ac"

    def available(self, topology: Topology) -> Availability:
        """Where links pass through the proxy and a topic is compacted."""
        links = links_available(topology)
        if not links.yes:
            return links
        cluster = topology.clusters[SOURCE]
        if any("compact" in (topic_setting(cluster, topic, "cleanup.policy") or "") for topic in topology.test_topics):
            return Availability(True)
        return Availability(False, "no topic of the run is compacted; use --cleanup-policy compact")

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        """Cut, and wait for gaps after the mirror's reach in every partition that is written to."""
        cut = cut_off(context, spec)
        gaps = context.wait(
            lambda: _gaps(cut),
            timeout_s=_CLEANED_S,
            what=f"the cleaner of cluster {cut.cluster.name} to leave a gap",
            swallow=(ClusterError,),
        )
        seen = {place: f"{first} to {last}" for place, (first, last) in gaps.items()}
        return cut.injected(
            spec, Bite(yes=True, seen=f"no request passes the link to {cut.cluster.name}; gaps: {names(seen)}")
        )


def _gaps(cut: CutOff) -> dict[tuple[str, int], tuple[int, int]] | None:
    """Partition → its first gap after the mirror's reach; None while none has one."""
    found = {}
    for info in cut.partitions():
        gap = first_gap(cut.cluster, info, cut.reach[info.topic, info.partition])
        if gap is not None:
            found[info.topic, info.partition] = gap
    return found or None
