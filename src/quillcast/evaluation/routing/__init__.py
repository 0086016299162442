"""Routes for millions of peers: routing tables and next hops."""
