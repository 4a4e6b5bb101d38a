"""Evidence from the clusters: logs decoded into tables, and snapshots of offsets, groups and mirror states."""
