"""Who is who and who may what: certified members of a network, join tokens, and topics' access lists."""
