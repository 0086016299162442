"""A peer's place in a topic's tree: local subscriptions, its children, its parent, and repair."""
