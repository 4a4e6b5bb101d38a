"""A small executable model of two Kafka clusters, their clients, and a correct mirror between them.

It writes what a real run stores, so that the judge can be tested with histories that are correct by construction, and
with the same histories after one mutation (`tests.model.mutations`). It does not replace Kafka: what Kafka really does
is tested on real brokers. The model shows what the *definitions* of the catalogue allow.
"""
