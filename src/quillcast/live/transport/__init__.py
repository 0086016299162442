"""Bytes between peers: sockets, TLS, frames, connections, links, shared memory."""
