"""Columns that identify a partition, and one of its replicas."""

PARTITION = ("cluster", "topic", "partition")
REPLICA = (*PARTITION, "broker")
