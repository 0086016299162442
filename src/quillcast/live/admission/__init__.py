"""Who belongs to a network, and for whom they act: certificates, tokens, credentials."""
