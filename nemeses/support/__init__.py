"""Shared by several nemeses: roles, checks of recovery, ways to cut, freeze and elect."""
