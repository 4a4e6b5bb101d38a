"""The checker interface: a function from stored tables to anomaly rows, and the kinds of anomaly that it can find.

Anomaly rows have one schema (`ANOMALY_COLUMNS`), so that the judge can union them, store them once, and count and
quote them from there. A checker reads only tables and does not know the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from checkers.views.tables import Tables


class Severity(StrEnum):
    """How bad an anomaly is (docs/checkers.md)."""

    S1 = "S1"  # loss or corruption
    S2 = "S2"  # isolation or order
    S3 = "S3"  # availability
    S4 = "S4"  # contract or documentation
    SEC = "SEC"  # security
    INFO = "INFO"  # a documented limit
    UNKNOWN = "unknown"  # not an anomaly: the run's data cannot decide


class Logs(StrEnum):
    """Which replicas' logs a kind needs complete, in each partition that it checks."""

    NONE = "none"
    ANY = "any"  # one in-sync replica's, which stands for the partition
    EVERY = "every"  # those of all replicas


ANOMALY_COLUMNS: tuple[tuple[str, str], ...] = (
    ("kind", "string"),
    ("form", "string"),  # which form of the kind, where a contract may distinguish them; else null
    ("cluster", "string"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("value", "string"),
    ("op_indices", "array<bigint>"),  # indices of the events (ops.index) that show it, ascending
    ("rank", "bigint"),  # smaller = more telling; ties are broken by the other columns
    ("explain", "string"),  # one plain sentence
)
"""Name and Spark type of every column of an anomaly row."""


@dataclass(frozen=True, kw_only=True)
class AnomalyKind:
    """One kind of anomaly.

    `what`: the invariant, in one sentence. `violation`: what a cluster did that broke it, in the past tense, to follow
    the cluster's name. `limitations`: what the checker cannot see. `sources`: the KIP, issue, report or paper of the
    definition. `requires`: stored tables without which the kind is `unknown`.
    `any_of`: stored tables of which at least one must be there, each for a form of its own.
    `logs`: replicas whose logs must be complete (by default: one of each partition, where logs are required at all).
    `after_healing`: whether it is about something that did not happen although every fault was healed.
    `forms`: names in the column `form`, which contracts may judge separately as `kind/form`.
    `section`: section of the catalogue (1 clients, 2 logs, 3 producers, 4 groups and access, 5 object stores).
    """

    name: str
    severity: Severity
    section: int
    what: str
    limitations: str
    violation: str = ""
    forms: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    requires: tuple[str, ...] = ("ops", "op_records")
    any_of: tuple[str, ...] = ()
    logs: Logs | None = None
    after_healing: bool = False

    @property
    def needs_logs(self) -> Logs:
        """Which replicas' logs must be complete."""
        if self.logs is not None:
            return self.logs
        return Logs.ANY if {"batches", "records"} & set(self.requires) else Logs.NONE


@dataclass(frozen=True, kw_only=True)
class Checker:
    """The kinds of one module. `check` returns anomaly rows, or None when there is nothing to check.

    `check` is called once, only for the kinds whose tables are there, and must return rows of its `kinds` only.
    `skip`: whether it is known to find nothing, so that it need not be called.
    """

    name: str
    kinds: tuple[AnomalyKind, ...]
    check: Callable[[Tables], DataFrame | None]
    skip: Callable[[Tables], bool] | None = None


def sentence(template: str, *columns: Column | str) -> Column:
    """One sentence: each `%s` of `template` is replaced by a column's value, or by `?` where it is null."""
    texts = [F.coalesce((F.col(c) if isinstance(c, str) else c).cast("string"), F.lit("?")) for c in columns]
    return F.format_string(template, *texts)


def no_ops() -> Column:
    """An empty `op_indices`."""
    return F.array().cast("array<bigint>")


def op_list(*columns: Column | str) -> Column:
    """`op_indices` from several index columns: without nulls and duplicates, ascending."""
    cols = [(F.col(c) if isinstance(c, str) else c).cast("bigint") for c in columns]
    return F.array_sort(F.array_distinct(F.array_compact(F.array(*cols))))


def anomalies(
    rows: DataFrame,
    kind: str | Column,
    *,
    explain: Column,
    cluster: Column | str | None = "cluster",
    topic: Column | str | None = "topic",
    partition: Column | str | None = "partition",
    offset: Column | str | None = "offset",
    value: Column | str | None = "value",
    ops: Column | None = None,
    rank: Column | str | int = 0,
    form: Column | None = None,
) -> DataFrame:
    """Shape `rows` into anomaly rows. Names are columns of `rows`; None stands for null."""

    def col(c: Column | str | int | None) -> Column:
        if c is None:
            return F.lit(None)
        if isinstance(c, int):
            return F.lit(c)
        return F.col(c) if isinstance(c, str) else c

    values: dict[str, Column] = {
        "kind": F.lit(kind) if isinstance(kind, str) else kind,
        "form": col(form),
        "cluster": col(cluster),
        "topic": col(topic),
        "partition": col(partition),
        "offset": col(offset),
        "value": col(value),
        "op_indices": no_ops() if ops is None else ops,
        "rank": F.coalesce(col(rank).cast("bigint"), F.lit(0).cast("bigint")),
        "explain": explain,
    }
    return rows.select(*(values[name].cast(kind_).alias(name) for name, kind_ in ANOMALY_COLUMNS))


def checked(t: Tables, frames: Sequence[DataFrame | None]) -> DataFrame:
    """The union of anomaly frames of a checker that had something to check, whether or not it found any."""
    found = union(frames)
    return t.no_anomalies if found is None else found


def union(frames: Sequence[DataFrame | None]) -> DataFrame | None:
    """The union of anomaly frames; None when there is none."""
    result: DataFrame | None = None
    for frame in frames:
        if frame is not None:
            result = frame if result is None else result.unionAll(frame)
    return result
