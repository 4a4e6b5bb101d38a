"""The links from a mirror to a cluster, through toxiproxy."""
