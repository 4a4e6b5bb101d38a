"""The reference mirror: Cluster Mirroring (KIP-1279) for unmodified Kafka brokers, by a leader that owns no log.

It registers with the destination's controller as a broker, leads the mirror partitions and answers its followers with
the source's batches. A reference for judging designs, not a product to run in production.
"""
