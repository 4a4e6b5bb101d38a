"""Measurements: provisioning, recording, checking. `python -m bench [provision|recording|check]`."""
