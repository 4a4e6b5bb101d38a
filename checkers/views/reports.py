"""What a mirror reported about records that it discarded or could not copy: by numbers and a reason, not by a word.

Not a checker. A report is the `error` of a row of `mirror_states` that gives a reason (that offsets are discarded, or
have expired) and says which: offsets from and to (`offsets 2 to 3`), or the offset that it begins at, or how many. A
text with a failure instead (`log truncation failed`), or without numbers, reports nothing: nobody learns from it which
writes are gone. The reference mirror reports `offsets 1288 to 1701 of this log are discarded, …` and `a gap: offsets
2 to 3 expired on the source …`. MirrorMaker 2 reports nothing about a gap while it goes on; a task that stops at one
fails with `Fetch position FetchPosition{offset=2, …} is out of range`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from checkers.views.mirror_starts import PLACE

if TYPE_CHECKING:
    from checkers.views.tables import Tables

DISCARDED = r"(?i)discard|truncat|dropp|delet|remov|overwr"
"""Reasons for which records of a log are given up."""
EXPIRED = r"(?i)\bgap\b|expir|retention|log.?start|out.?of.?range"
"""Reasons for which records of a source cannot be copied any more."""
FAILED = (
    r"(?i)fail|cannot|could ?n.t|could not|unable|refus|timed? ?out|\bnot (been )?(discard|truncat|dropp|delet|remov)"
)
RANGE = r"(?i)offsets?\s*[=\[(]?\s*(\d+)\s*(?:to|through|until|up to|and|,|-|–|\.\.+)\s*(\d+)"
COUNT = r"(?i)(\d+)\s+(?:\w+\s+){0,2}?(?:records|record|writes|write|messages|message|offsets)\b"
FROM = r"(?i)(?:above|from|after|beyond|at|to|cut)\s+(?:the\s+)?(?:cut\s+)?(?:at\s+|of\s+)?(?:offset\s*[=:]?\s*)?(\d+)"
OFFSET = r"(?i)(?:offsets?|log start|starts?)\s*(?:offset\s*)?(?:=|:|is|at|of)?\s*(\d+)"


def reported(t: Tables, reason: str) -> DataFrame:
    """Reports for one of the reasons: PLACE, time_ns, error, low and high (the range that it names, arrays of equal
    length), count (how many it says; null: it does not), since (offsets that it says something begins at), offsets
    (all that it calls so, or the log start)."""
    rows = t.table("mirror_states").where(F.col("error").rlike(reason))
    rows = rows.withColumn("origin_topic", t.canonical())
    return rows.select(
        *(*PLACE, "time_ns", "error"),
        _numbers(RANGE, 1).alias("low"),
        _numbers(RANGE, 2).alias("high"),
        F.array_max(_numbers(COUNT, 1)).alias("count"),
        _numbers(FROM, 1).alias("since"),
        _numbers(OFFSET, 1).alias("offsets"),
    )


def discards_reported(t: Tables) -> DataFrame:
    """`reported` of discarded records, without rows that say that it failed."""
    return reported(t, DISCARDED).where(~F.col("error").rlike(FAILED))


def covers(offset: Column, report: Column) -> Column:
    """Whether a report (a struct of `reported`) names a range with this offset, or, without range and count, says that
    something begins at or below it."""
    ranges = F.arrays_zip(report["low"].alias("low"), report["high"].alias("high"))
    by_range = F.exists(ranges, lambda r: (r["low"] <= offset) & (offset <= r["high"]))
    bare = (F.size(report["low"]) == 0) & report["count"].isNull()
    return by_range | (bare & F.exists(report["since"], lambda at: at <= offset))


def _numbers(pattern: str, group: int) -> Column:
    found = F.regexp_extract_all(F.col("error"), F.lit(pattern), F.lit(group))
    return F.transform(found, lambda text: text.try_cast("bigint"))
