"""Identities and permissions: certified members of a network, join tokens, and the access lists of topics."""
