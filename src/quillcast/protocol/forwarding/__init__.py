"""The data path: control planes write the forwarding table, it only reads it (docs/design.md, decision 5)."""
