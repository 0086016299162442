"""The public API: `Node`, `BlockingNode`, and what a node is composed of."""
