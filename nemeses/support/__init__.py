"""What several nemeses share: roles, probes, ways to cut, freeze and elect."""
