"""Who belongs to a network and on whose behalf it acts: certificates, tokens, credentials."""
