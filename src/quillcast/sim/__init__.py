"""Many peers on one virtual clock: the protocol code of real peers, from one seed (docs/design.md, section 11)."""
