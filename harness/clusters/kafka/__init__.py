"""Kafka nodes: their configuration, their administration, one request to one of them."""
