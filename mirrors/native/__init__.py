"""The authors' own Cluster Mirroring (KIP-1279), which runs within the brokers of the destination."""
