"""Per link: one failure detector and the change streams that its heartbeats check (docs/design.md, decision 4)."""
