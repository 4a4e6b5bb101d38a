"""Path, inside containers, of the script that starts Kafka."""

from __future__ import annotations

ENTRY_DIR = "/opt/shatterproof"
ENTRY_POINT = f"{ENTRY_DIR}/run-kafka.sh"
