"""Pastry: the ring of peers that routes a message to the live peer closest to a key (docs/design.md, section 3)."""
