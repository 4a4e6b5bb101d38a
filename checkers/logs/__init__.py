"""Producer ids and transactions in the logs: checkers of section 3 of the catalogue, one per file."""
