"""What is stable, and what a peer reports about it along its tree links."""
