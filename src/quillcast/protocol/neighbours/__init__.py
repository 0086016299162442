"""Per link: one failure detector, and the streams of changes that ride on it (docs/design.md, decision 4)."""
