"""What one process runs a peer on: the event pump, patience, the event loop."""
