"""The data path only reads the forwarding table; control planes write it (docs/design.md, decision 5)."""
