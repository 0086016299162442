"""Deployments of millions of peers, evaluated before anyone builds them (DESIGN.md, section 9: *Evaluate*)."""
