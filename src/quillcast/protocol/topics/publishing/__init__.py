"""A peer's own publishers: they find the root, send and resend events, and change a topic's settings."""
