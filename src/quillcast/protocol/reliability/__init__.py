"""Keeping promises: repair by ranges between the neighbours of a tree."""
