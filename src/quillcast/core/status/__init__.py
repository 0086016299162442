"""What peers tell of themselves: one schema for `Node.status`, `Node.tree`, the commands, `--json` and metrics.

Ids are hexadecimal. Times are in seconds unless the name ends in `_ms`, and sizes in bytes. Peers of different versions
read each other's answers: unknown fields are ignored, and a field that is added later has a default.
"""
