"""The sieve for large histories: numbers alone find the few values that are worth a close look.

The close look (`fates`) joins strings and arrays, which is dear for millions of records of which none is wrong. The
sieve sees keys, offsets and flags; it lets through every value that could show an anomaly, and many that turn out
clean. Whatever it keeps back is provably clean: sent by one operation, and seen at just the offset that its sender was
told by all who had to see it; or never acknowledged, and seen once or nowhere, where it was sent; in the order of its
sends; and nothing else was seen or told at its place.

How it works, on Spark, in two passes over packed columns (`packed`):
1. `spans`, `events`: the history in ranges of its index. Each range reads the events and the records of just that range
   and pairs them without a shuffle, because both are stored in that order. What remains is keyed by value, by place (a
   block of offsets of a partition) and by line (one process at one partition).
2. `values`, `order`, `spots`: everything with one key comes together in one bucket, and is tested there.
What such a test cannot decide by itself (`follow`) costs another pass, of histories that show it alone.

Keys are 64-bit hashes. Two of them may collide, with a chance of about 1 in 10^7 for 10^6 values that any pair does;
what is let through is compared by the values themselves, so a collision can hide an anomaly, never make one.
"""
