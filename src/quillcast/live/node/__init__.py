"""The public API: `Node`, `BlockingNode`, and the parts of a node."""
