"""The mirror's copy of the log against the source's: checkers of section 2 of the catalogue, one per file."""
