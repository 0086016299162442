"""Repair of lost events, by ranges, between the neighbours of a tree."""
