"""The forwarding policy at a peer's place in a tree, and the channels that it, sources and scopes want."""
