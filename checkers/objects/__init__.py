"""Object stores: checkers of section 5 of the catalogue."""
