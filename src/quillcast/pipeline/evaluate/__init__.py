"""Deployments of millions of peers, evaluated before anyone builds them (docs/design.md, section 9: *Evaluate*)."""
