"""A peer's part in scopes: as a member of some, and as the host of managers of others (docs/scopes.md, *At a peer*)."""
