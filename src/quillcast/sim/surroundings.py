"""What all processes of a world share: its clock, its network, and the encoding of messages."""

from collections.abc import Callable
from typing import Any

from quillcast.core.bundle import Bundle
from quillcast.core.messages import Codec, Message
from quillcast.sim.clock import Clock
from quillcast.sim.journal import Journal
from quillcast.sim.network import Network

WINDOW_BYTES = 1 << 20  # credit of an ordered pair of peers


class Surroundings(Clock):
    """Time, the network, and the machines by address.

    Args:
        network: delays and disturbances between machines.
        codec: encodes messages; None passes messages and bundles by reference, which is faster and less realistic.
        window_bytes: credit for bundles of each ordered pair of peers.
        journal: where trace records go.
    """

    def __init__(
        self,
        network: Network,
        codec: Codec | None,
        *,
        window_bytes: int = WINDOW_BYTES,
        journal: Journal | None = None,
    ) -> None:
        super().__init__()
        self.network, self.window_bytes = network, window_bytes
        self.journal = journal if journal is not None else Journal()
        self.steps = 0
        self.encode: Callable[[Message], Any] = codec.encode if codec is not None else _same
        self.decode: Callable[[Any], Any] = codec.decode if codec is not None else _same
        self.pack: Callable[[Bundle], Any] = Bundle.encode if codec is not None else _same
        self.unpack: Callable[[Any], Bundle] = Bundle.decode if codec is not None else _same
        self.addresses: dict[str, int] = {}
        """The number of the machine at each address."""

    def count_step(self) -> None:
        """A process handles an input."""
        self.steps += 1

    def number_at(self, address: str) -> int:
        """The number of the machine at an address; one past the last if there is none."""
        return self.addresses.get(address, len(self.addresses))


def _same(thing: Any) -> Any:
    return thing
