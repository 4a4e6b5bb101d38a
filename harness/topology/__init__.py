"""What may be asked of a running topology: protocols that clusters and mirrors implement, and everybody else uses."""
