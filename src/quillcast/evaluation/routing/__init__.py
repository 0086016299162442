"""Routes of millions of peers: who is in a routing table, and who is the next hop."""
