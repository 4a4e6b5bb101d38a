"""Consumer groups, ACLs, epochs and the mirror's states: checkers of section 4 of the catalogue, one per file."""
