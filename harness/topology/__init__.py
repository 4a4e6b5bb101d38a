"""The protocols of a running topology: clusters and mirrors implement them, all other packages use them."""
