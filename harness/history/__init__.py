"""Histories: what clients did and observed, and the stored format that holds it together with the evidence."""
