"""What a peer knows of topics: its trees, terms, roots and subscriptions, and what it has to report of them."""
