"""What the clients do, and the final reads that end a run: one file per workload, and the registry."""
