"""Keys of places and targets, for whole columns.

A *place* is a partition of one cluster (and era: a recreated topic is another one), a *target* a partition by its
topic's name on A.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from checkers.eras import Failbacks, Incarnations, era_of
from checkers.prefilter.coded import Coded
from checkers.prefilter.hashing import Ints, mixed, xxh64


@dataclass(frozen=True)
class Context:
    """The input of every task. topics: (cluster, topic there) → its name on A, where they differ. incarnations,
    failbacks: see `checkers.views.incarnations` and `checkers.views.failbacks`. decided: a folder of Parquet files with
    transactions (cluster, th: hash of the name, bits: COMMITTED or ABORTED, asked: index of the last request to commit
    it), or none. buckets: into how many parts everything is divided. given: a folder of Parquet files with the
    positions that consumers were given (columns of `events._GIVEN`; see `checkers.views.positions`), or none."""

    topics: Mapping[tuple[str, str], str]
    incarnations: Incarnations
    failbacks: Failbacks
    decided: str | None
    read_committed_by_default: bool
    buckets: int
    given: str | None = None


@dataclass(frozen=True)
class Events:
    """For every row: the index of its operation's invocation, its own index, its time, and the offset that it names."""

    op: Ints
    index: Ints
    time: Ints
    offset: Ints


def located(
    context: Context,
    cluster: Coded,
    topic: Coded,
    partition: Ints,
    *,
    events: Events | None = None,
    era: Ints | None = None,
) -> tuple[Ints, Ints, Ints]:
    """place, target and era of every row; place and target are 0 where topic or partition is unknown. The era is given,
    or follows from the events."""
    pair = cluster.codes * len(topic.names) + topic.codes
    origin = np.zeros(len(cluster.names) * len(topic.names), np.int64)
    eras = np.zeros(len(partition), np.int64) if era is None else era
    for code in np.unique(pair).tolist():
        here = cluster.names[code // len(topic.names)] or "A"
        name = topic.names[code % len(topic.names)] or ""
        origin[code] = xxh64(pa.array([context.topics.get((here, name), name)]))[0]
        windows = context.incarnations.get((here, name))
        if windows and events is not None:
            rows = np.flatnonzero(pair == code)
            eras[rows] = era_of(windows, events.op[rows], events.index[rows])
    if context.failbacks and events is not None:
        _branch(context, eras, cluster, topic, partition, events)
    known = (partition >= 0) & (topic.codes < len(topic.names) - 1)
    place = mixed(cluster.keys("A"), topic.keys(), partition, eras)
    target = mixed(origin[pair], partition)
    return np.where(known, place, 0), np.where(known, target, 0), eras


def _branch(context: Context, eras: Ints, cluster: Coded, topic: Coded, partition: Ints, events: Events) -> None:
    """Set the era of rows that refer to what a later failback discarded to that of the branch."""
    for (letter, name, number), failbacks in context.failbacks.items():
        here = cluster.among(letter, *((None,) if letter == "A" else ())) & topic.among(name) & (partition == number)
        for n in range(len(failbacks), 0, -1):
            at, cut = failbacks[n - 1]
            eras[here & (events.time < at) & (events.offset >= cut)] = -n
