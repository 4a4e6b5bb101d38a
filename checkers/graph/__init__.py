"""Graphs of transactions: dependencies, components, and how a large one is partitioned."""
