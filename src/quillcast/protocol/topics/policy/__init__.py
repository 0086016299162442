"""The forwarding policy applied to a peer's place in a tree."""
