"""The harness's side of the reference mirror: starts its processes, asks their admin API, stores what they say."""
