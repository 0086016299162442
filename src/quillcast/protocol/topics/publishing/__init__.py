"""A peer's own publishers: they find the root, send, send again, and change a topic's settings."""
