"""Stories of compacted topics: a cleaner removes superseded records on each side at its own time, and nothing else.

A log is written as `OFFSET:KEY:VALUE`; without a value the record is a tombstone, without a key it has none.
"""

from __future__ import annotations

from typing import Any

from jsonl_story import Lines, Pack, Record

MM2 = Pack("mm2-at-least-once")
EXACTLY = Pack("mm2-exactly-once")
STRICT = Pack("cluster-mirror/strict")
KAFKA = Pack("kafka-clean")
T1 = {"txn": "T1", "pid": 7, "pepoch": 0, "lepoch": 0}
COMMIT, ABORT = {**T1, "ctl": "COMMIT"}, {**T1, "ctl": "ABORT"}


def compact(h: Lines, *clusters: str, policy: str = "compact", topic: str = "t") -> None:
    """The topic is created with this cleanup policy."""
    for cluster in clusters:
        h.both("admin", "create_topic", cluster=cluster, topic=h.topic(topic), config={"cleanup.policy": policy})


def written(h: Lines, cluster: str, *records: str, by: str = "p1") -> None:
    """Each record sent and acknowledged at its offset."""
    for text in records:
        offset, key, value = text.split(":")
        if value:
            h.send(cluster, value, at=int(offset), by=by, **({"key": key} if key else {}))
        else:
            place = {"cluster": cluster, "topic": h.topic("t"), "partition": 0, "value": None, "key": key}
            h.both(by, "send", done={"offset": int(offset)}, **place)


def log(*records: str, **extra: Any) -> list[Record]:
    """Records of a dump."""
    found: list[Record] = []
    for text in records:
        offset, key, value = text.split(":")
        found.append((int(offset), value or None, {**({"key": key} if key else {}), **extra}))
    return found


@MM2.story("mirror_loss")
def superseded_only_on_the_destination(h: Lines, fault: bool) -> None:
    """The cleaner has run on B alone; the newest record of a key may not be missing."""
    compact(h, "A", "B")
    written(h, "A", "0:k:v0", "1:l:w", "2:k:v1", "3:m:x")
    h.dump("A", *log("0:k:v0", "1:l:w", "2:k:v1", "3:m:x"))
    h.dump("B", *log(*([] if fault else ["1:l:w"]), "2:k:v1", "3:m:x"))


@MM2.story("mirror_loss")
def policy_known_on_the_source_alone(h: Lines, fault: bool) -> None:
    """A mirror gives its topics the source's configuration."""
    compact(h, "A")
    written(h, "A", "0:k:v0", "1:l:w", "2:k:v1", "3:m:x")
    h.dump("A", *log("0:k:v0", "1:l:w", "2:k:v1", "3:m:x"))
    h.dump("B", *log(*([] if fault else ["1:l:w"]), "2:k:v1", "3:m:x"))


@MM2.story("mirror_loss")
def value_written_again_and_cleaned_on_the_destination(h: Lines, fault: bool) -> None:
    compact(h, "A", "B")
    written(h, "A", "0:k:v", "1:l:w", "2:k:v", "3:m:x")
    h.dump("A", *log("0:k:v", "1:l:w", "2:k:v", "3:m:x"))
    h.dump("B", *log("1:l:w", *([] if fault else ["2:k:v"]), "3:m:x"))


@EXACTLY.story("mirror_duplicate", "duplicate")
def value_written_again_and_cleaned_on_the_source(h: Lines, fault: bool) -> None:
    """The destination still has the copy that the source has removed, but no copy of its own making."""
    compact(h, "A", "B")
    written(h, "A", "0:k:v", "1:l:w", "2:k:v", "3:m:x")
    h.dump("A", *log("1:l:w", "2:k:v", "3:m:x"))
    h.dump("B", *log("0:k:v", "1:l:w", "2:k:v", "3:m:x", *(["4:m:x"] if fault else [])))


@EXACTLY.story("mirror_duplicate", "duplicate")
def value_written_again_and_cleaned_nowhere(h: Lines, fault: bool) -> None:
    compact(h, "A", "B")
    written(h, "A", "0:k:v", "1:l:w", "2:k:v", "3:m:x")
    h.dump("A", *log("0:k:v", "1:l:w", "2:k:v", "3:m:x"))
    h.dump("B", *log("0:k:v", "1:l:w", "2:k:v", "3:m:x", *(["4:l:w"] if fault else [])))


@EXACTLY.story("mirror_duplicate", "duplicate")
def copied_twice_next_to_a_removed_record(h: Lines, fault: bool) -> None:
    compact(h, "A", "B")
    written(h, "A", "0:k:a", "1:l:b", "2:k:c")
    h.dump("A", *log("1:l:b", "2:k:c"))
    h.dump("B", *log("0:k:a", "1:l:b", *(["2:l:b", "3:k:c"] if fault else ["2:k:c"])))


@EXACTLY.story("mirror_duplicate")
def logs_alone_of_a_value_written_twice(h: Lines, fault: bool) -> None:
    """No client is recorded; the source has a gap for the copy that was removed, or none."""
    compact(h, "A", "B")
    rest = ("1:l:w", "2:k:v", "3:m:x")
    h.dump("A", *log(*(["0:n:u"] if fault else []), *rest))
    h.dump("B", *log("0:n:u" if fault else "0:k:v", *rest, *(["4:k:v"] if fault else [])))


@EXACTLY.story("mirror_reorder")
def order_of_what_is_left_on_the_destination(h: Lines, fault: bool) -> None:
    """The first copy of v was removed on B; of w and x there was only one."""
    compact(h, "A", "B")
    written(h, "A", "0:k:v", "1:l:w", "2:k:v", "3:m:x")
    h.dump("A", *log("0:k:v", "1:l:w", "2:k:v", "3:m:x"))
    h.dump("B", *log(*(["1:m:x", "2:k:v", "3:l:w"] if fault else ["1:l:w", "2:k:v", "3:m:x"])))


@EXACTLY.story("mirror_reorder")
def order_where_the_source_has_removed_first_copies(h: Lines, fault: bool) -> None:
    compact(h, "A", "B")
    written(h, "A", "0:k:v", "1:l:w", "2:k:v", "3:m:x", "4:n:y")
    h.dump("A", *log("1:l:w", "2:k:v", "3:m:x", "4:n:y"))
    h.dump("B", *log("0:k:v", "1:l:w", "2:k:v", *(["3:n:y", "4:m:x"] if fault else ["3:m:x", "4:n:y"])))


@EXACTLY.story("mirror_reorder")
def swapped_next_to_a_removed_record(h: Lines, fault: bool) -> None:
    compact(h, "A", "B")
    written(h, "A", "0:k:a", "1:l:b", "2:m:c", "3:k:d", "4:n:e")
    h.dump("A", *log("1:l:b", "2:m:c", "3:k:d", "4:n:e"))
    h.dump("B", *log("0:k:a", *(["1:m:c", "2:l:b"] if fault else ["1:l:b", "2:m:c"]), "3:k:d", "4:n:e"))


@MM2.story("mirror_reorder")
def copies_sent_again_and_partly_removed(h: Lines, fault: bool) -> None:
    """MM2 was restarted and killed again after v: of its two copies the first was removed."""
    compact(h, "A", "B")
    written(h, "A", "0:k:v", "1:l:w")
    h.dump("A", *log("0:k:v", "1:l:w"))
    h.dump("B", *log(*(["0:l:w", "1:k:v"] if fault else ["1:l:w", "2:k:v"])))


@MM2.story("mirror_loss")
def superseded_by_a_record_above_the_cut(h: Lines, fault: bool) -> None:
    """What supersedes a record on B must have been copied, too."""
    compact(h, "A", "B")
    written(h, "A", "0:k:v0", "1:l:w", "2:m:x", "3:k:v1")
    h.dump("A", *log("0:k:v0", "1:l:w", "2:m:x", "3:k:v1"))
    cut = 3 if fault else 4
    h.mirror("mirror_stop", source_offset=cut, destination_offset=cut)
    h.dump("B", *log("1:l:w", "2:m:x", *([] if fault else ["3:k:v1"])), leo=cut)


@STRICT.story("mirror_loss")
def superseded_by_an_aborted_record(h: Lines, fault: bool) -> None:
    """A cleaner ignores what aborted records would supersede."""
    compact(h, "A", "B")
    written(h, "A", "0:k:v0")
    h.txn("A", "begin", "T1", by="t")
    h.send("A", "v1", at=1, txn="T1", key="k", pid=7, epoch=0, by="t")
    h.txn("A", "abort" if fault else "commit", "T1", by="t")
    written(h, "A", "3:m:x")
    end = (2, None, ABORT if fault else COMMIT)
    h.dump("A", *log("0:k:v0"), *log("1:k:v1", **T1), end, *log("3:m:x"))
    h.dump("B", *([] if fault else log("1:k:v1", **T1)), end, *log("3:m:x"))


@MM2.story("mirror_loss")
def deleted_by_a_tombstone(h: Lines, fault: bool) -> None:
    """B's cleaner has removed the record, and later the tombstone; in the other twin it is of another key."""
    compact(h, "A", "B")
    tombstone = f"2:{'j' if fault else 'k'}:"
    written(h, "A", "0:k:v0", "1:l:w", tombstone, "3:m:x")
    h.dump("A", *log("0:k:v0", "1:l:w", tombstone, "3:m:x"))
    h.dump("B", *log("1:l:w", "3:m:x"))


@MM2.story("mirror_loss")
def tombstone_after_the_last_copied_value(h: Lines, fault: bool) -> None:
    """Nobody says how far the mirror got; it may have copied the tombstone."""
    compact(h, "A", "B")
    written(h, "A", "0:k:v0", "1:l:w", *(["2:m:x"] if fault else []), "3:k:")
    h.dump("A", *log("0:k:v0", "1:l:w", *(["2:m:x"] if fault else []), "3:k:"))
    h.dump("B", *log("1:l:w"))


@MM2.story("mirror_loss")
def superseded_by_a_local_write(h: Lines, fault: bool) -> None:
    """After the failover clients write to B."""
    compact(h, "A", "B")
    written(h, "A", "0:k:v0", "1:l:w")
    h.dump("A", *log("0:k:v0", "1:l:w"))
    h.mirror("failover", "nemesis", to="B")
    key = "j" if fault else "k"
    written(h, "B", f"2:{key}:own", by="p2")
    h.dump("B", *log("1:l:w", f"2:{key}:own"))


@MM2.story("mirror_loss")
def without_a_key(h: Lines, fault: bool) -> None:
    """A cleaner removes records without a key."""
    compact(h, "A", "B")
    first = "0:k:v0" if fault else "0::v0"
    written(h, "A", first, "1:l:w", "2:m:x")
    h.dump("A", *log(first, "1:l:w", "2:m:x"))
    h.dump("B", *log("1:l:w", "2:m:x"))


@MM2.story("mirror_loss")
def log_of_the_source_not_captured(h: Lines, fault: bool) -> None:
    """The sends say what superseded what."""
    compact(h, "A", "B")
    written(h, "A", "0:k:v0", "1:l:w", "2:k:v1", "3:m:x")
    h.dump("B", *log(*([] if fault else ["1:l:w"]), "2:k:v1", "3:m:x"))


@MM2.story("mirror_loss")
def compacted_and_deleted(h: Lines, fault: bool) -> None:
    compact(h, "A", "B", policy="compact,delete")
    written(h, "A", "0:k:v0", "1:l:w", "2:k:v1", "3:m:x")
    h.dump("A", *log("0:k:v0", "1:l:w", "2:k:v1", "3:m:x"))
    h.dump("B", *log(*([] if fault else ["1:l:w"]), "2:k:v1", "3:m:x"), log_start=0)


@STRICT.story("mirror_loss")
def copies_of_a_mirror_that_keeps_offsets(h: Lines, fault: bool) -> None:
    compact(h, "A", "B")
    written(h, "A", "0:k:v", "1:l:w", "2:k:v", "3:m:x", "4:n:y")
    h.dump("A", *log("1:l:w", "2:k:v", "3:m:x", "4:n:y"))
    h.dump("B", *log("0:k:v", "1:l:w", "2:k:v", *([] if fault else ["3:m:x"]), "4:n:y"))


@STRICT.story("gap_identity", "mirror_reorder")
def value_written_again_above_the_cut(h: Lines, fault: bool) -> None:
    """B has the first copy, A the second; in the other twin a gap was closed."""
    compact(h, "A", "B")
    if fault:
        written(h, "A", "0:l:z", "1:l:w", "2:k:v")
        h.dump("A", *log("1:l:w", "2:k:v"))
        h.mirror("mirror_stop", source_offset=3, destination_offset=3)
        h.dump("B", *log("1:l:w"), *log("0:k:v"), leo=3)
    else:
        written(h, "A", "0:k:v", "1:l:w", "2:k:v")
        h.dump("A", *log("1:l:w", "2:k:v"))
        h.mirror("mirror_stop", source_offset=2, destination_offset=2)
        h.dump("B", *log("0:k:v", "1:l:w"))


@EXACTLY.story("mirror_loss")
def markers_on_both_sides(h: Lines, fault: bool) -> None:
    """A transaction's marker stays when its records have been removed."""
    compact(h, "A", "B")
    h.txn("A", "begin", "T1")
    h.send("A", "v0", at=0, txn="T1", key="k", pid=7, epoch=0)
    h.send("A", "w", at=1, txn="T1", key="l", pid=7, epoch=0)
    h.txn("A", "commit", "T1")
    written(h, "A", "3:k:v1", "4:m:x", by="p2")
    h.dump("A", *log("1:l:w", **T1), (2, None, COMMIT), *log("3:k:v1", "4:m:x"))
    own = {"pid": 50, "pepoch": 0, "lepoch": 0}
    end = {**own, "ctl": "COMMIT"}
    rest = log(*([] if fault else ["1:l:w"]), "3:k:v1", **own)
    h.dump("B", *rest, (4, None, end), *log("5:m:x", **own), (6, None, end))


@MM2.story("group_skip")
def group_skips_what_was_removed(h: Lines, fault: bool) -> None:
    """The dump is older than the cleaning; the newest record of a key may not be left out."""
    compact(h, "A", "B")
    written(h, "A", "0:k:v0", "1:k:v1", "2:l:w")
    h.dump("B", *log("0:k:v0", "1:k:v1", "2:l:w"))
    h.offsets("commit_offset", "A", 0)
    h.offsets("sync_group_offset", "B", 0, source_offset=0)
    h.mirror("failover", "nemesis", to="B")
    h.poll("B", *([] if fault else [(1, "v1")]), (2, "w"), group="g", position=3)


@MM2.story("group_skip")
def group_skips_local_writes_that_were_removed(h: Lines, fault: bool) -> None:
    """No log is known, only what was acknowledged."""
    compact(h, "A", "B")
    written(h, "A", "0:k:v0")
    h.offsets("commit_offset", "A", 1)
    h.offsets("sync_group_offset", "B", 1, source_offset=1)
    h.mirror("failover", "nemesis", to="B")
    written(h, "B", "1:k:u0", "2:k:u1", "3:l:w", by="p2")
    h.poll("B", (2, "u1"), (3, "w"), by="other")
    h.poll("B", *([] if fault else [(2, "u1")]), (3, "w"), group="g", position=4)


@MM2.story("group_skip")
def group_skips_a_record_that_is_still_there(h: Lines, fault: bool) -> None:
    """It is superseded, but a later dump holds it."""
    compact(h, "A", "B")
    written(h, "A", "0:k:v0", "1:k:v1", "2:l:w")
    h.offsets("commit_offset", "A", 0)
    h.dump("B", *log("0:k:v0", "1:k:v1", "2:l:w"))
    h.offsets("sync_group_offset", "B", 0, source_offset=0)
    h.mirror("failover", "nemesis", to="B")
    h.poll("B", (1, "v1"), (2, "w"), group="g", position=3)
    h.dump("B", *log(*(["0:k:v0"] if fault else []), "1:k:v1", "2:l:w"), log_start=0)


@MM2.story("checkpoint_rewind/ahead")
def translated_over_removed_records(h: Lines, fault: bool) -> None:
    """Of v, which was written twice, B has one copy; the checkpoint is past no record that is to be read."""
    compact(h, "A", "B")
    written(h, "A", "0:k:v", "1:l:w", "2:k:v")
    h.dump("A", *log("0:k:v", "1:l:w", "2:k:v"))
    h.dump("B", *log("0:k:v", "1:l:w"))
    h.offsets("checkpoint", "B", 2 if fault else 1, source_offset=1, by="mm2")


@MM2.story("retention_gap")
def expired_after_it_had_been_removed(h: Lines, fault: bool) -> None:
    """compact,delete: v0 had been superseded before the mirror came to it; u was the only record of its key."""
    compact(h, "A", "B", policy="compact,delete")
    written(h, "A", "0:k:v0", "1:j:u" if fault else "1:k:v2", "2:k:v1", "3:l:w", "4:m:x")
    h.line("nemesis", "info", "retention", cluster="A", topic=h.topic("t"), partition=0, log_start=2)
    h.dump("A", *log("2:k:v1", "3:l:w", "4:m:x"), log_start=2)
    h.dump("B", *log("0:k:v1", "1:l:w", "2:m:x"))


@KAFKA.story("lost_write/gone")
def newest_record_of_a_key_is_gone(h: Lines, fault: bool) -> None:
    compact(h, "A")
    written(h, "A", "0:k:v0", "1:k:v1", "2:l:w")
    h.dump("A", *log(*([] if fault else ["1:k:v1"]), "2:l:w"))


@KAFKA.story("lost_write/gone")
def gone_without_a_tombstone(h: Lines, fault: bool) -> None:
    compact(h, "A")
    written(h, "A", "0:k:v0", f"1:{'j' if fault else 'k'}:", "2:l:w")
    h.dump("A", *log("2:l:w"), log_start=0)


PACKS = {"mm2": MM2, "exactly": EXACTLY, "strict": STRICT, "kafka": KAFKA}
