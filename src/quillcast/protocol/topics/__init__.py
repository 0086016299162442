"""Scribe: a multicast tree per topic, built from the overlay's routes to the topic's rendezvous point."""
