"""Lets links close that this layer does not use."""

from quillcast.protocol.neighbours.neighbours import Neighbours


class IdleLinks:
    """Tracks which links were used. Links to watched neighbours stay open, as the failure detector decides."""

    __slots__ = ("_neighbours", "_visited", "_visited_before")

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours
        self._visited: dict[bytes, None] = {}
        self._visited_before: tuple[bytes, ...] = ()

    def visited(self, node_id: bytes) -> None:
        """The link to this peer was used."""
        self._visited[node_id] = None

    def release(self, node_id: bytes) -> None:
        """This layer does not need the link to this peer."""
        self._neighbours.release(node_id)

    def end_round(self) -> None:
        """Release the links that were not used in this round."""
        for node_id in self._visited_before:
            if node_id not in self._visited:
                self._neighbours.release(node_id)
        self._visited, self._visited_before = {}, tuple(self._visited)  # a dict takes four times the memory
