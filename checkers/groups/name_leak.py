"""`name_leak`: a principal without rights on mirrors learnt a mirror's name.

Proves: by a row of `mirror_names`, an answer to a principal who is not entitled contained a mirror's name.

Cannot see: requests that were not tried; names that can be guessed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from checkers.base import AnomalyKind, Checker, Severity, anomalies, sentence
from checkers.views.tables import Tables

KIND = AnomalyKind(
    name="name_leak",
    severity=Severity.SEC,
    violation="disclosed names of mirrors to principals without rights",
    section=4,
    what="a principal without rights on mirrors learns no mirror's name",
    limitations="requests that were not tried",
    sources=("KIP-1279",),
    requires=("mirror_names",),
)


def check(t: Tables) -> DataFrame | None:
    """One row per cluster, principal, surface and mirror."""
    rows = t.table("mirror_names").where("entitled = false and mirror is not null")
    rows = rows.select("cluster", "principal", "surface", "mirror").distinct()
    return anomalies(
        rows,
        "name_leak",
        topic=None,
        partition=None,
        offset=None,
        value="mirror",
        explain=sentence(
            "%s learnt from %s of %s that a mirror is named %s", "principal", "surface", "cluster", "mirror"
        ),
    )


CHECKER = Checker(name="name_leak", kinds=(KIND,), check=check)
