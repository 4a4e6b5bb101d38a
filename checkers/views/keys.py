"""Columns that identify a partition, one of its replicas, and a group's offset in it."""

PARTITION = ("cluster", "topic", "partition")
REPLICA = (*PARTITION, "broker")
GROUP = ("cluster", "group", "topic", "partition")
