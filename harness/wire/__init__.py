"""Kafka's wire protocol, based on kio: bounded clients for requests that the client libraries do not offer."""
