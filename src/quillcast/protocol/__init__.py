"""Everything deterministic: state machines without any I/O of their own, which reach the world through `core.host`."""
