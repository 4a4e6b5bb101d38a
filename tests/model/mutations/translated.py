"""A mirror that produces records again (MirrorMaker 2): what its contract does not allow, and translated offsets."""

from __future__ import annotations

from collections import Counter

from model.logs import Batch, Partition
from model.mutations.base import Stage, mutation
from model.mutations.clients import PASSED, SEQUENCES
from model.mutations.victim import Victim, valued


def _single(v: Victim) -> list[tuple[Partition, Batch]]:
    """Copies on B of records that are there once and that A still holds."""
    counts = Counter(r.value for p in v.w.b.partitions for b in p.log.batches for r in b.records)
    held = {r.value for p in v.w.a.partitions for b in p.log.batches for r in b.records if r.offset >= p.start}
    found = []
    for part in v.w.b.partitions:
        for b in part.log.batches:
            values = [r.value for r in b.records if b.control is None]
            known = all(x in held and counts[x] == 1 and v.fates[x].cluster == "A" for x in values if x)
            if values and known:
                found.append((part, b))
    return found


@mutation(
    "mirror_loss",
    stage=Stage.LOGS,
    mirror="mm2",
    may={
        "sequence_gap": SEQUENCES,
        "poll_skip": PASSED,
        "checkpoint_rewind": "checkpoints were translated with it",
        "group_out_of_range": "offsets were synced to the end with it",
    },
)
def drop_a_written_copy(v: Victim) -> bool:
    """MirrorMaker skips records."""
    found = v.pick(_single(v))
    if found is None:
        return False
    v.drop(*found)
    return True


@mutation(
    "mirror_reorder",
    stage=Stage.LOGS,
    mirror="mm2",
    consumers=0,
    groups=0,
    share=False,
)
def swap_written_copies(v: Victim) -> bool:
    """MirrorMaker writes two batches in the wrong order."""
    found = _single(v)
    for part, one in found:
        for other, two in found:
            if part is other and one.base < two.base and len(one.records) == len(two.records):
                v.put(part, valued(one, [r.value for r in two.records]))
                v.put(part, valued(two, [r.value for r in one.records]))
                return True
    return False


@mutation("retention_gap", mirror="mm2", trouble=("expiry", "link"), sends=10, scenario="steady")
def say_nothing_of_expired_records(v: Victim) -> bool:
    """MirrorMaker skips records that expired on A, acknowledged ones among them, and does not report it."""
    told = [r for r in v.tables["mirror_states"] if r["error"]]
    for row in told:
        row["error"] = None
    there = {r.value for p in v.w.b.partitions for b in p.log.batches for r in b.records}
    expired = [f for f in v.sure("A") if f.offset < v.w.a.partitions[f.partition].start and f.value not in there]
    return bool(expired)


@mutation("checkpoint_rewind", form="back", mirror="mm2", groups=2)
def translate_backwards(v: Victim) -> bool:
    """A translated offset goes back while the source offset goes forward."""
    rows = v.rows("group_offsets", event="checkpoint")
    for one in rows:
        for two in rows:
            same = (one["group"], one["partition"]) == (two["group"], two["partition"])
            if same and one["time_ns"] < two["time_ns"] and one["offset"] > 0:
                two["offset"] = one["offset"] - 1
                return True
    return False


@mutation("checkpoint_rewind", form="ahead", mirror="mm2", groups=2)
def translate_too_far(v: Victim) -> bool:
    """A translated offset is far beyond the true position."""
    rows = v.rows("group_offsets", event="checkpoint")
    if not rows:
        return False
    rows[-1]["offset"] += 1_000
    return True


@mutation("group_out_of_range", form="sync", mirror="mm2", groups=2)
def sync_beyond_the_end(v: Victim) -> bool:
    """A translated offset that is synced to a group is beyond B's log end."""
    row = v.pick(v.rows("group_offsets", event="sync"))
    if row is None:
        return False
    row["offset"] += 1_000
    return True
