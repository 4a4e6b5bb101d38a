"""Histories of Jepsen's Kafka workload: import and export."""
