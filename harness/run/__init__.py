"""One test from its plan to its end: phases, scenarios, tear-down; and campaigns of many."""
