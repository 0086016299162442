"""What peers report about themselves: one schema for `Node.status`, `Node.tree`, commands, `--json` and metrics.

Ids are hexadecimal. Times are in seconds unless the name ends in `_ms`, and sizes in bytes. Peers of different versions
understand each other: unknown fields are ignored, and fields that are added later have a default.
"""
