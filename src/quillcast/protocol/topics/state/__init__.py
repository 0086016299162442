"""One topic at one peer: its place in the tree, leases, subscriptions, the terms of its root and sources; orders."""
