"""What the checkers found, from the stored anomalies: counts per kind by the contract's levels, and witnesses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.base import AnomalyKind
from checkers.catalogue import CATALOGUE
from checkers.judge.headline import Found
from checkers.judge.judgement import Finding
from harness.core.contracts import Contract, Level

WITNESSES = 8


def findings_of(stored: DataFrame | None, contract: Contract) -> tuple[Finding, ...]:
    """Counts per kind, and the best witnesses of each: breaches first."""
    if stored is None:
        return ()
    groups = [row.asDict() for row in stored.groupBy("kind", "form", "cluster").count().collect()]
    if not groups:
        return ()
    breach = [g for g in groups if _level(contract, g) is Level.NEVER]
    quoted = _quote(stored, breach)
    findings = []
    for name, kind in CATALOGUE.items():
        mine = [g for g in groups if g["kind"] == name]
        if not mine:
            continue
        bad = [g for g in mine if g in breach]
        telling = (bad or mine)[0]
        clause = contract.clause(name, form=telling["form"], cluster=telling["cluster"])
        findings.append(
            Finding(
                kind=kind,
                count=sum(g["count"] for g in mine),
                breaches=sum(g["count"] for g in bad),
                level=clause.level,
                reason=clause.reason,
                found=_by_cluster(kind, mine, contract),
                witnesses=tuple(quoted.get(name, ())),
            )
        )
    return tuple(findings)


def _by_cluster(kind: AnomalyKind, groups: Iterable[dict[str, Any]], contract: Contract) -> tuple[Found, ...]:
    counts: dict[tuple[str | None, Level, str], int] = {}
    for g in groups:
        clause = contract.clause(g["kind"], form=g["form"], cluster=g["cluster"])
        key = (g["cluster"], clause.level, clause.reason)
        counts[key] = counts.get(key, 0) + g["count"]
    return tuple(Found(kind, cluster, count, level, reason) for (cluster, level, reason), count in counts.items())


def _level(contract: Contract, group: dict[str, Any]) -> Level:
    return contract.clause(group["kind"], form=group["form"], cluster=group["cluster"]).level


def _quote(stored: DataFrame, breach: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    def same(column: str, value: str | None) -> Column:
        return F.col(column).eqNullSafe(F.lit(value))

    is_breach = F.lit(False)
    for g in breach:
        is_breach = is_breach | (same("kind", g["kind"]) & same("form", g["form"]) & same("cluster", g["cluster"]))
    order: list[Column | str] = [
        (~is_breach).cast("int"),
        "rank",
        "cluster",
        "topic",
        "partition",
        "offset",
        "value",
        "explain",
    ]
    numbered = stored.withColumn("n", F.row_number().over(Window.partitionBy("kind").orderBy(*order)))
    quoted: dict[str, list[dict[str, Any]]] = {}
    for row in numbered.where(F.col("n") <= WITNESSES).orderBy("kind", "n").drop("n", "rank").collect():
        witness = {key: value for key, value in row.asDict().items() if value is not None and key != "kind"}
        quoted.setdefault(row["kind"], []).append(witness)
    return quoted
