"""Mutations break one thing in a correct example: what the judge must report, and what may come with it."""
