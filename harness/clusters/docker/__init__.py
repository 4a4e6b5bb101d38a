"""The container engine: images, containers, networks, and what they are called."""
