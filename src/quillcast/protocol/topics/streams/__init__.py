"""The streams of sources at a peer: topics with `admission = source`."""
