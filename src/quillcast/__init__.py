"""Publish/subscribe without a broker: peers that find each other, build multicast trees, and repair them."""

__version__ = "0.1.0"
