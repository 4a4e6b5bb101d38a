"""`retention`: records of the source expire before its mirror has read them.

The mirror's link to the source is cut; once more records were written, the first half of them is deleted in every such
partition, as retention does. It proves: requests do not pass the link, and the source's log start is above everything
it had when that was proven, so that no mirror can have the records in between. Then the link is healed.
It cannot see: records that a lagging consumer of the source misses because of it.
"""

from __future__ import annotations

import contextlib

from harness.core.errors import ClusterError, StorageError
from harness.history.ops import Action, F, OpRecord, OpType
from harness.topology.topology import Topology
from harness.wire.metadata import PartitionMeta
from nemeses.base import Availability, Bite, FaultContext, FaultSpec, Injected, Timing
from nemeses.support.cut_off import SOURCE, CutOff, SourceCutOff, cut_off, names
from nemeses.support.direct import delete_records, high_watermark, topic_setting
from nemeses.support.link_targets import LINK_NEEDS, links_available

_LEAST = 20  # records after the mirror's reach, of which half are deleted
_WRITTEN_S = 15.0


class Retention(SourceCutOff):
    """See the module."""

    name = "retention"
    description = "delete records of the source that the mirror has not read, while its link to the source is cut"
    needs = LINK_NEEDS
    timing = Timing(least_s=1, most_s=4, settle_s=3)
    color = "#ff9da6"

    def available(self, topology: Topology) -> Availability:
        """Where links pass through the proxy, and brokers delete records of the topics."""
        links = links_available(topology)
        if not links.yes:
            return links
        cluster = topology.clusters[SOURCE]
        policies = {t: topic_setting(cluster, t, "cleanup.policy") or "delete" for t in topology.test_topics}
        kept = [topic for topic, policy in policies.items() if "delete" not in policy]
        if kept:
            return Availability(False, f"brokers delete no records of compacted topics such as {kept[0]}")
        return Availability(True)

    def inject(self, context: FaultContext, spec: FaultSpec) -> Injected:
        """Cut, wait for writes, delete, and compare log starts with the mirror's reach."""
        cut = cut_off(context, spec)
        written = context.wait(
            lambda: _written(cut),
            timeout_s=_WRITTEN_S,
            what=f"{_LEAST} records in a partition of cluster {cut.cluster.name}",
            swallow=(ClusterError,),
        )
        starts: dict[tuple[str, int], int] = {}
        for info, end in written:
            place = (info.topic, info.partition)
            offset = cut.reach[place] + (end - cut.reach[place]) // 2
            starts[place] = _expire(context, cut, spec, info, offset)
        passed = {place: f"at {start}, reach {cut.reach[place]}" for place, start in starts.items()}
        bite = Bite(
            yes=all(start > cut.reach[place] for place, start in starts.items()),
            seen=f"no request passes the link to {cut.cluster.name}; log starts: {names(passed)}",
        )
        return cut.injected(spec, bite)


def _written(cut: CutOff) -> list[tuple[PartitionMeta, int]] | None:
    """Partitions with enough records after the mirror's reach, and their high watermarks; None while there is none."""
    ends = [(info, high_watermark(cut.cluster, info)) for info in cut.partitions()]
    return [(i, end) for i, end in ends if end - cut.reach[i.topic, i.partition] >= _LEAST] or None


def _expire(context: FaultContext, cut: CutOff, spec: FaultSpec, info: PartitionMeta, offset: int) -> int:
    """Delete records below the offset, and record that; returns the new log start. Raises: ClusterError."""
    recorder, letter = context.recorder, cut.cluster.name
    target = (OpRecord(Action.TARGET, info.topic, info.partition, offset),)
    process = f"{spec.nemesis}-{spec.fault_id}-{info.topic}-{info.partition}"
    index = recorder.invoke(process, F.RETENTION, cluster=letter, records=target)
    try:
        start = delete_records(cut.cluster, info, offset)
    except ClusterError as error:
        recorder.complete(index, OpType.INFO, records=target, error="UNCONFIRMED", error_text=str(error))
        raise
    recorder.complete(index, OpType.OK, records=target)
    with contextlib.suppress(StorageError):  # a full disk must not stop a fault half-way; it ends the run anyway
        recorder.row(
            "configs",
            cluster=letter,
            event="retention",
            actor="admin",
            topic=info.topic,
            name="log_start",
            value=str(start),
        )
    return start
