"""Real Kafka clusters in containers: images, the engine, nodes, networks, and links through toxiproxy."""
