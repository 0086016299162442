"""Many peers on one virtual clock: the same protocol code as on real sockets, from one seed (DESIGN.md, section 11)."""
