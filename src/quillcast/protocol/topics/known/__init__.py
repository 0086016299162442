"""What a peer knows about topics: their terms, the peers that keep them, what others may say, what scopes permit."""
