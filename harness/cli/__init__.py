"""The command `shatter`: one function per command, and what only commands need."""
