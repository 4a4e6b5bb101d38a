"""One thing made wrong in an example that was right: what the judge must call it, and what must come with it."""
