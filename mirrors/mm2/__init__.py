"""MirrorMaker 2 in dedicated mode as the mirror under test."""
