"""What a peer knows about topics, their terms and the peers that keep them, and what it believes of what others say."""
