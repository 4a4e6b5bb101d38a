"""What breaks things: one file per nemesis, and the registry."""
