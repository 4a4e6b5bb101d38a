"""Mirroring implementations under test, and their registry."""
