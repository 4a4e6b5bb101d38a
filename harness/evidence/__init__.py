"""What the clusters hold after the load: logs decoded into tables, offsets, groups."""
