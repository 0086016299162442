"""The read-only arrays of a deployment: places with delays and links between them, and the peers at those places.

A deployment is written once as `.npy` files, and every process of a machine maps the same pages. Nothing of the size
peers times table rows is stored: routing tables are computed from (place, prefix).
"""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Ids = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


def frozen(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The array in the form for all kernels: of this type, C-contiguous, read-only. Memory-mapped pages stay mapped."""
    if type(array) is np.ndarray and array.dtype == dtype and not array.flags.writeable and array.flags.c_contiguous:
        return array
    plain = np.ascontiguousarray(array, dtype).view(np.ndarray).reshape(array.shape)
    plain.flags.writeable = False
    return plain


class Arrays:
    """Arrays in a folder: one `.npy` file each, mapped into memory when opened."""

    def __post_init__(self) -> None:
        """Make the arrays read-only, as when mapped, because kernels are compiled for one kind of array."""
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def save(self, folder: Path) -> None:
        """Write each array to the folder, and the other fields as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        rest: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                np.save(folder / f"{field.name}.npy", value)
            else:
                rest[field.name] = value
        (folder / "rest.json").write_text(json.dumps(rest))

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open saved arrays. All processes that open them share their pages."""
        rest = json.loads((folder / "rest.json").read_text())
        maps = {path.stem: np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))}
        arrays = {name: mapped.view(np.ndarray) for name, mapped in maps.items()}  # plain arrays are faster to slice
        return cls(**arrays, **rest)


@dataclass(frozen=True, slots=True)
class Topology(Arrays):
    """Places that peers attach to: routers of a graph, rows of a measured matrix, or points of a space.

    Args:
        delay_ms: one-way delays, float32 [places, places]; [0, 0] if there are coordinates.
        coordinates: float32 [places, dimensions], whose Euclidean distance is a one-way delay in ms; else [0, 0].
        via: the last link of the path from s to t, int32 or uint16 [places, routers]; undefined if s == t; [0, 0] if
    there is no graph. The router before t is `link_ends[via[s, t]].sum() - t`. The first routers are the places.
        link_ends: int32 [links, 2]; every link is a core link between two routers.
        link_ms: one-way delay of each link, float32 [links].
        domain: the true administrative domain of each place, and of further routers, int32 [routers].
        attachable: places that peers may attach to, int32 [any].
        access_ms: one-way delay of the link between a peer and its place.
        name: for people.
        place_names: for people; empty, or one per router.
    """

    delay_ms: Floats
    coordinates: Floats
    via: npt.NDArray[Any]
    link_ends: Ints
    link_ms: Floats
    domain: Ints
    attachable: Ints
    access_ms: float
    name: str
    place_names: list[str]

    @property
    def places(self) -> int:
        """The number of places."""
        return len(self.delay_ms) or len(self.coordinates)

    @property
    def routers(self) -> int:
        """The number of places, and of routers that have no peers."""
        return len(self.domain)

    @property
    def has_links(self) -> bool:
        """Whether it is a graph, so that link stress is known."""
        return bool(self.via.shape[0])


@dataclass(frozen=True, slots=True)
class Peers(Arrays):
    """The peers of a deployment, in the order of their nodeIds. A peer's number is its index in that order.

    Args:
        ids: the first 64 bits of each nodeId, uint64 [peers], strictly ascending.
        place: where each is attached, int32 [peers].
        domain: the domain of each peer, int32 [peers]: true labels, or clusters found by delay.
    """

    ids: Ids
    place: Ints
    domain: Ints

    def __len__(self) -> int:
        return len(self.ids)


NOBODY: Ints = np.empty(0, np.int32)


class Group(NamedTuple):
    """A topic, its subscribers and its publishers.

    `key` is the topicId's first 64 bits; `members` ascend, int32 [members]; `publishers`: int32 [publishers], empty if
    unspecified; `creator`: -1 if the seed decides.
    """

    number: int
    key: int
    members: Ints
    seed: int
    publishers: Ints = NOBODY
    creator: int = -1


class Tree(NamedTuple):
    """How a policy carries one group's events, or a share of them.

    Args:
        nodes: the peers in it, int32 [nodes]: the root first, and each after its parent.
        parent: the index in `nodes` of each peer's parent, int32 [nodes]; -1 for the root.
        member: whether the peer subscribed, bool [nodes].
        weight: the share of its publishers' events that this tree carries: 1 / n with n stripes.
        extra: further messages per event, which deliver nothing new, as pairs of peers, int32 [any, 2].
        state: entries that each node keeps for this group's membership, int32 [nodes].
        joins: messages that each node handled while the members joined, int32 [nodes].
        source: the only peer whose events it carries, which is the root; -1 if it carries those of all publishers, who
    send them to the root.
    """

    nodes: Ints
    parent: Ints
    member: Flags
    weight: float
    extra: Ints
    state: Ints
    joins: Ints
    source: int = -1
