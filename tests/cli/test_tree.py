"""The drawing of a topic's tree: what is in a scope is in a box."""

from typing import Any

from quillcast.cli.tree import draw
from quillcast.core.status.base import TopicScope
from quillcast.core.status.trees import TreeChannel, TreePeer, TreeStatus


def peer(node: str, scope: str = "", children: str = "", *, root: bool = False, **more: Any) -> TreePeer:
    return TreePeer(
        node * 8, f"h:{node}", root=root, children=tuple(each * 8 for each in children.split()),
        subscriptions=int(not root), term="1.a", frontier=0, lags=(), scope=scope,
        **{"parent": None, **more},
    )  # fmt: skip


def drawn(*peers: TreePeer) -> list[str]:
    root = next(each.node_id for each in peers if each.root)
    return list(draw(TreeStatus("t", True, root, None, 0, peers, ())))[1:]


def test_a_tree_without_scopes_has_no_boxes() -> None:
    assert drawn(peer("a", children="b c", root=True), peer("b", children="d"), peer("c"), peer("d")) == [
        "aaaaaaaa h:a  root",
        "├── bbbbbbbb h:b  1 subscription",
        "│   └── dddddddd h:d  1 subscription",
        "└── cccccccc h:c  1 subscription",
    ]


def test_the_members_of_a_scope_are_in_a_box_below_its_entry_point() -> None:
    peers = [peer("a", children="b e", root=True), peer("b", "site", "c d"), peer("c", "site"), peer("e")]
    assert drawn(*peers, peer("d", "site")) == [
        "aaaaaaaa h:a  root",
        "├── ┌─ scope site ─────────────────────┐",
        "│   │ bbbbbbbb h:b  1 subscription     │",
        "│   │ ├── cccccccc h:c  1 subscription │",
        "│   │ └── dddddddd h:d  1 subscription │",
        "│   └──────────────────────────────────┘",
        "└── eeeeeeee h:e  1 subscription",
    ]


def test_what_hangs_below_a_scope_elsewhere_is_drawn_below_its_box() -> None:
    peers = [peer("a", "north", "b c f", root=True), peer("b", "north"), peer("c", "south", "d"), peer("d", "south")]
    assert drawn(*peers) == [
        "┌─ scope north ────────────────────┐",
        "│ aaaaaaaa h:a  root               │",
        "│ ├── bbbbbbbb h:b  1 subscription │",
        "│ └── ffffffff did not answer      │",
        "└──────────────────────────────────┘",
        "└── from aaaaaaaa",
        "    └── ┌─ scope south ────────────────────┐",
        "        │ cccccccc h:c  1 subscription     │",
        "        │ └── dddddddd h:d  1 subscription │",
        "        └──────────────────────────────────┘",
    ]


def test_scopes_in_scopes_are_boxes_in_boxes_with_policies_and_the_channels_beside_the_tree() -> None:
    campus = (TopicScope("campus", "chain"),)
    north, south = (TopicScope("north", "stripes"), *campus), (TopicScope("south", "ring"), *campus)
    halves = [TreeChannel(each * 8, f"h:{each}", f"1-{at}", f"serial modulo 2 = {at}") for at, each in enumerate("cd")]
    group = TreeChannel("f" * 8, "udp://239.255.81.67:8167?hops=1", "2-all", "")
    shown = drawn(
        peer("a", children="b", root=True),
        peer("b", "north", "c e", scopes=north, channels=tuple(halves)),
        peer("c", "north", scopes=north, parent="b" * 8, channels=(group,)),
        peer("d", "south", scopes=south),
        peer("e", "south", "d", scopes=south, channels=(TreeChannel("b" * 8, "h:b", "1:1-2", ""),)),
    )
    assert shown == [
        "aaaaaaaa h:a  root",
        "└── ┌─ scope campus (chain) ─────────────────────────────────────────────────────────────────┐",
        "    │ ┌─ scope north (stripes) ────────────────────────────────────────────────────────────┐ │",
        "    │ │ bbbbbbbb h:b  1 subscription                                                       │ │",
        "    │ │ ├── also to dddddddd over channel 1-1 (serial modulo 2 = 1)                        │ │",
        "    │ │ └── cccccccc h:c  channel 1-0 (serial modulo 2 = 0), 1 subscription                │ │",
        "    │ │     └── also to all members at once at udp://239.255.81.67:8167 over channel 2-all │ │",
        "    │ └────────────────────────────────────────────────────────────────────────────────────┘ │",
        "    │ └── from bbbbbbbb                                                                      │",
        "    │     └── ┌─ scope south (ring) ────────────────────┐                                    │",
        "    │         │ eeeeeeee h:e  1 subscription            │                                    │",
        "    │         │ ├── also to bbbbbbbb over channel 1:1-2 │                                    │",
        "    │         │ └── dddddddd h:d  1 subscription        │                                    │",
        "    │         └─────────────────────────────────────────┘                                    │",
        "    └────────────────────────────────────────────────────────────────────────────────────────┘",
    ]
