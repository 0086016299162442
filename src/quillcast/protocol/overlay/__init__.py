"""Pastry: the ring of peers that routes a message to the live peer closest to a key (DESIGN.md, section 3)."""
