"""Frames that several checkers share, each built once over a run's stored tables."""
