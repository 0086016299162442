"""Per link: one failure detector, and the streams of changes that ride on it (DESIGN.md, decision 4)."""
