"""The Kafka clients that workloads are made of."""
