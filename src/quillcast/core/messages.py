"""What control messages are made of. Each layer declares its own in its `messages.py`; `protocol/wire.py` gathers them.

Tag numbers are appended, never reused; new fields go last, with a default.

====== ==================
tags   layer
====== ==================
1-19   neighbours
20-39  overlay
40-69  topics
70-89  reliability
====== ==================
"""

from typing import Any, Protocol

import msgspec


class Message(msgspec.Struct, frozen=True, array_like=True):
    """A control message. Repeat ``frozen=True`` on each class and give it a ``tag``."""


class Contact(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A peer and where it is reached: whoever is introduced is introduced with an address."""

    node_id: bytes
    address: str


class Codec(Protocol):
    """Encodes and decodes any layer's message; a layer that carries others' messages is given one."""

    def encode(self, message: Message) -> bytes:
        """The message as bytes."""
        ...

    def decode(self, data: bytes) -> Any:
        """The message of these bytes. Raises `Malformed`."""
        ...
