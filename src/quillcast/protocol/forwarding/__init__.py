"""The table that moves bundles: control planes write it, the data path only reads it (docs/design.md, decision 5)."""
