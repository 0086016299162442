"""Where peers stand: generated networks, and measured ones."""

from quillcast.core.errors import LocalError
from quillcast.pipeline.evaluate.network import Topology
from quillcast.pipeline.evaluate.topology.generator import transit_stub

TRANSIT_STUB = "transit-stub"


def load(name_or_path: str, seed: int) -> Topology:
    """The topology that an experiment names.

    Args:
        name_or_path: "transit-stub".
        seed: of what is generated.

    Raises `LocalError` if there is none of this name.
    """
    if name_or_path == TRANSIT_STUB:
        return transit_stub(seed)
    raise LocalError(f"no topology is called {name_or_path!r}; known: {TRANSIT_STUB}")
