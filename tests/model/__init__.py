"""A small executable model of two Kafka clusters, their clients, and a correct mirror between them.

It writes what a real run of ours stores, so that the judge can be asked about histories that are right by construction,
and about the same histories with one thing made wrong (`tests.model.mutations`). Nothing here stands in for Kafka: what
Kafka really does is tested on real brokers. The model says what the *definitions* of the catalogue allow.
"""
