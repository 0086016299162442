"""Where events enter and leave a peer: publishers, batchers, subscriptions."""
