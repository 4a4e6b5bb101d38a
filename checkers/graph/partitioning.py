"""Partitions a large graph into parts that share no cycle, by DataFrame expressions and in a fixed number of steps.

Nodes are numbered in time order. An edge to a smaller number is a back edge; every cycle has one. Where no back edge
spans a number, no cycle does: once past it, nothing leads back. So the back edges, as intervals, are merged where they
touch, and nodes between the merged intervals are in no cycle. A chain of any length without a back edge costs one
pass; a history whose transactions overlap becomes many small parts, which workers process (`components`).

The numbering affects how small the parts are, never the result.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def cyclic_parts(edges: DataFrame) -> DataFrame:
    """The edges (source, target, …) that may be part of a cycle, with `part`: the part they are in."""
    spans = _spans(edges.where("source > target"))
    size = spans.agg(F.count("*").alias("n"), F.min("low").alias("low"), F.max("high").alias("high")).first()
    if size is None or not size.n:
        return edges.where(F.lit(False)).withColumn("part", F.lit(0).cast("bigint"))
    # Spark can distribute equi-joins: numbers are divided into as many slots as there are parts.
    width = max(1, (size.high - size.low) // size.n)
    slots = F.sequence(F.floor(F.col("low") / width), F.floor(F.col("high") / width))
    spans = spans.withColumn("slot", F.explode(slots)).withColumn("part", F.col("low"))
    inside = "source between low and high and target between low and high"
    edges = edges.withColumn("slot", F.floor(F.col("source") / width))
    return edges.join(spans, "slot").where(inside).drop("slot", "low", "high")


def _spans(back: DataFrame) -> DataFrame:
    """Back edges merged into disjoint intervals of node numbers: low, high."""
    reaches = back.groupBy(F.col("target").alias("low")).agg(F.max("source").alias("high"))
    order = Window.orderBy("low")
    before = F.max("high").over(order.rowsBetween(Window.unboundedPreceding, -1))
    fresh = F.when(before.isNull() | (F.col("low") > before), F.col("low"))
    first = F.last("fresh", ignorenulls=True).over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    merged = reaches.withColumn("fresh", fresh).withColumn("first", first)
    return merged.groupBy(F.col("first").alias("low")).agg(F.max("high").alias("high"))
