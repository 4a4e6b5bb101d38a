"""Plans of topologies: specifications, the plan made from them, and Kafka's configuration of each node. Pure."""
