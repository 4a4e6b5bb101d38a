"""What clients saw: checkers of section 1 of the catalogue, one per file."""
