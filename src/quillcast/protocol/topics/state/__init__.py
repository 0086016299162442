"""What a peer knows about topics: its trees, terms, roots and subscriptions, and what it has to report about them."""
