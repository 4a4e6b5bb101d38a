"""What is to run: specifications, the plan that they become, and Kafka's configuration of each node. Pure."""
