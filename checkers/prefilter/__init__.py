"""The prefilter for large histories: finds, with numbers only, the few values that need a close check.

The close check (`value_outcomes`) joins strings and arrays, which is expensive for millions of clean records. The
prefilter works on keys, offsets and flags; it keeps every value that could show an anomaly, and many that turn out to
be clean. Whatever it drops is provably clean: sent by one operation, and seen by every reader that had to see it at
exactly the acknowledged offset; or never acknowledged, and seen at most once, where it was sent; in the order of its
sends; and nothing else was seen or acknowledged at its place.

How it works, on Spark, in two passes over packed columns (`packed`):
1. `spans`, `events`: the history in ranges of its index. Each range reads only its own events and records and pairs
   them without a shuffle, because both are stored in that order. `logs`: the records of the authoritative logs. The
   result is keyed by value, by place (a block of offsets of a partition) and by line (one process at one partition).
2. `values`, `order`: all rows with one key are in one bucket, and are tested there.
What such a test cannot decide by itself (`follow`) takes another pass, only for histories that need it.

Keys are 64-bit hashes. The chance that any two of 10^6 values collide is about 1 in 10^7; values that are kept are
compared by themselves, so a collision can hide an anomaly, never cause one.
"""
