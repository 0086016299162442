"""Simulate many peers on one virtual clock: the real protocol code, driven by one seed (docs/design.md, section 11)."""
