"""The drawing of a topic's tree: what is in a scope is in a box."""

from quillcast.cli.tree import draw
from quillcast.core.status.trees import TreePeer, TreeStatus


def peer(node: str, scope: str = "", children: str = "", *, root: bool = False) -> TreePeer:
    return TreePeer(
        node * 8, f"h:{node}", root=root, parent=None, children=tuple(each * 8 for each in children.split()),
        subscriptions=int(not root), term="1.a", frontier=0, lags=(), scope=scope,
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
