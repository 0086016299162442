"""The one table that moves bundles: control planes write it, the data path only reads it (DESIGN.md, decision 5)."""
