"""The container engine: images, containers, networks, and their names."""
