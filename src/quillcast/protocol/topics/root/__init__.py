"""A peer as the root of a topic: how it becomes root, admits events, replicates its state, and transfers leadership."""
