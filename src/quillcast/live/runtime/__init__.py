"""What one process runs a peer on: the event pump, the host, the event loop."""
