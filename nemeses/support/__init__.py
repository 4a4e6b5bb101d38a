"""Shared by several nemeses: roles, probes, ways to cut, freeze and elect."""
