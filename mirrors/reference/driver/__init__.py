"""The harness's side of the reference mirror: starts its processes, calls their admin API, records the answers."""
