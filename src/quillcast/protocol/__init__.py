"""Deterministic state machines without I/O. They reach the outside world through `core.host`."""
