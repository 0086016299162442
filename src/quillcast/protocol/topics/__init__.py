"""Scribe: a multicast tree per topic, made of the overlay's routes to the topic's rendezvous point."""
