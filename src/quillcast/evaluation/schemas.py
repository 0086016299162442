"""The tables of an evaluation, with Spark's types. Peers, places, links and groups are identified by number."""

PLACES = "place int, domain int, attachable boolean, name string"
"""Places of peers: routers of a graph, rows of a measured matrix, or points of a space."""

LINKS = "link int, from_place int, to_place int, delay_ms float"
"""Core links, each between two routers; delays are one-way. Empty if the topology is not a graph."""

PEERS = "peer int, id long, place int, domain int"
"""One row per peer, in the order of their nodeIds. `id`: the first 64 bits, as a signed number."""

GROUPS = "group int, name string, key long, members int, task int, pieces int"
"""One row per group, the largest first. `name`: if real membership has one. `key`: the topicId's first 64 bits, as a
signed number. Groups with the same `task` are processed together; tasks start in order, so that the largest groups
start first. The routes of a group with several `pieces` are found by as many tasks, if the policy allows it."""

TREES = (
    "group int, tree int, part int, size int, weight double, nodes array<int>, parents array<int>, "
    "member array<boolean>, state array<int>, joins array<int>, extra_from array<int>, extra_to array<int>, source int"
)
"""How each group's events travel: one row per tree. A large tree has one row for each `part`, in order.

`tree`: a policy may use several trees for a group, each of which carries the share `weight` of the events. `source`:
the only peer whose events the tree carries, which is its root; -1 if it carries those of all publishers. `size`: the
number of peers in the whole tree. `nodes`: these peers, the root first and each after its parent; `parents`: the sender
of the event to each, -1 for the root; `member`: whether it subscribed. `state`: entries that each keeps for this
group's membership, `joins`: messages that each handled while members joined; null if there is one for each child.
`extra_from`, `extra_to`: further messages, to peers that already have the event."""

EDGES = "group int, tree int, node int, parent int, member boolean, redundant boolean, weight double"
"""The same by message: `parent` sends the event to `node`; it is -1 for the root. `redundant`: the node already has the
event."""

ROUTES = "group int, task int, piece int, nodes binary, parents binary"
"""One task's part of the tree of a split group: the peers on the routes of some of its members, int32, and the next
hop of each, -1 for the root. Pieces are in the order of the members, and rows of a piece are consecutive."""

DELAYS = (
    "group int, source int, members int, nodes int, depth int, children_max int, messages double, "
    "rmd float, rad float, max_ms float, mean_ms float, ip_max_ms float, ip_mean_ms float, border_copies double, "
    "rmd_from_root float, rad_from_root float"
)
"""One row per group and publisher. `rmd` and `rad` are the ratios of the maximum and of the mean delays from `source`
to the members, relative to IP multicast. A source that is not the tree's root sends to the root first. `messages`:
between peers, per event; `border_copies`: those that cross from one domain into another. `rmd_from_root` and
`rad_from_root` are the same ratios from each tree's own root, without the path to it."""

LOADS = "peer int, entries long, trees int, " + ", ".join(f"capped_{1 << step} int" for step in range(7))
"""The load of all groups on each peer, for policies that must know it beforehand: entries in its children tables, trees
that it is in, and its entries if none of its tables had more than this many."""

STRESS = (
    "kind string, number int, tables int, entries int, forwarded double, state long, joins long, "
    "messages double, ip_messages double"
)
"""The load of one event in each group, a mean over its publishers. `kind`: `peer`, whose `messages` are those on its
access link, or `link`, a core link, whose `number` is that in `links`. `tables`: children tables that are not empty;
`entries`: children in them; `forwarded`: messages sent; `ip_messages`: those of IP multicast from the same
publishers."""

HISTOGRAMS = "kind string, figure string, value double, count long"
"""The number of peers or core links by value, for each of the figures of `stress`."""

CHURN = "group int, killed int, cut_off int, orphans int, messages long, max_ms double, mean_ms double"
"""The effect of the death of a share of all peers on each group, over all its trees: members that were `killed`,
survivors that are no longer connected to the root, peers that lost a parent, their Joins and the answers, and how long
these travel."""

PARTIALS = "kind string, block int, types string, numbers binary, sums binary"
"""One task's part of the total sums: `numbers` within one block, uint16, and their sums, one figure after another,
each in the type that `types` names with two letters (u1, u2, u4, f8). Packed, because separate rows would be most of
the work."""


FILES = "path string, bytes long, content binary"
"""The files of a table that tasks write and read themselves (`stored`).

`content` is that of a file written where the folder is not visible, else null. A `path` that is not absolute is in an
archive that Spark has shipped.
"""


def columns(schema: str) -> list[str]:
    """The names of a schema's columns."""
    return [column.split()[0] for column in schema.split(", ")]
