"""Kafka's wire protocol on kio: bounded clients for what the client libraries do not offer."""
