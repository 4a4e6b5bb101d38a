"""Kafka nodes: administration, containers, single requests to one node."""
