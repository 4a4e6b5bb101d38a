"""Decides from stored tables what was lost, duplicated, reordered or mixed up. Spark only."""
