"""Any mirror that is a container or commands, described in a TOML file (docs/external.md)."""
