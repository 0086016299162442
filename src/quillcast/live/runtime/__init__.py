"""What a peer runs on in its process: the event pump, patient time-outs, the event loop."""
