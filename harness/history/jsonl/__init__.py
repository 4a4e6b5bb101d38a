"""Histories in JSON lines (docs/history-format.md) as runs."""
