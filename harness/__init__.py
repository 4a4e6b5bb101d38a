"""Shatterproof's engine: clusters, links, mirrors, the history they leave, and the reports made of it."""

__version__ = "0.1.0"
