"""What the clients saw, and the stored format that keeps it together with the evidence."""
