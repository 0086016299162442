"""The tables of an evaluation, as Spark names types. Peers, places, links and groups are named by their numbers."""

PLACES = "place int, domain int, attachable boolean, name string"
"""Where peers may stand: routers of a graph, rows of a measured matrix, or points of a space."""

LINKS = "link int, from_place int, to_place int, delay_ms float"
"""Core links, each of which joins two routers; delays are one-way. Empty where the topology is no graph."""

PEERS = "peer int, id long, place int, domain int"
"""One row per peer, in the order of their nodeIds. `id`: the first 64 bits, as a signed number."""

GROUPS = "group int, name string, key long, members int, task int, pieces int"
"""One row per group, the largest first. `name`: where real membership has one. `key`: the
topicId's first 64 bits, as a signed number. Groups of equal `task`
are worked on together; tasks start in their order, so that the largest groups start first. A group of several `pieces`
has the routes of its members found by as many tasks, where the policy allows."""

TREES = (
    "group int, tree int, part int, size int, weight double, nodes array<int>, parents array<int>, "
    "member array<boolean>, state array<int>, joins array<int>, extra_from array<int>, extra_to array<int>"
)
"""How each group's events travel: one row per tree, of a large tree one for each `part` of it, which follow each other.

`tree`: a policy may spread a group over several, each of which carries the share `weight` of its events. `size`: how
many peers are in the whole tree. `nodes`: they, the root first and each after its parent; `parents`: who sends the
event to each, -1 to the root; `member`: who subscribed. `state`: entries that each keeps for this group's membership,
`joins`: messages that each handled while members joined; null where it is one for each child. `extra_from`,
`extra_to`: further messages, to peers that have the event from elsewhere already."""

EDGES = "group int, tree int, node int, parent int, member boolean, redundant boolean, weight double"
"""The same message by message: `parent` sends the event to `node`; it is -1 for the root. `redundant`: it has the event
from elsewhere already."""

ROUTES = "group int, task int, piece int, nodes binary, parents binary"
"""What one task adds to the tree of a group that is split: the peers on the routes of some of its members, int32, and
the next hop of each, -1 for the root. Pieces follow the order of the members, rows of a piece follow each other."""

DELAYS = (
    "group int, source int, members int, nodes int, depth int, children_max int, messages double, "
    "rmd float, rad float, max_ms float, mean_ms float, ip_max_ms float, ip_mean_ms float, border_copies double"
)
"""One row per group and publisher. `rmd` and `rad` are the ratios of the greatest and of the mean delays from `source`
to the members, against IP multicast's. A source that is not the tree's root sends to the root first. `messages`:
between peers, per event; `border_copies`: those of them that cross from one domain into another."""

LOADS = "peer int, entries long, trees int, " + ", ".join(f"capped_{1 << step} int" for step in range(7))
"""What all groups together ask of each peer, for policies that must know it beforehand: entries in its children tables,
trees that it is in, and its entries if none of its tables had more than so many."""

STRESS = (
    "kind string, number int, tables int, entries int, forwarded double, state long, joins long, "
    "messages double, ip_messages double"
)
"""The load of one event in each group. `kind`: `peer`, whose `messages` are those on its access link, or `link`, a core
link, whose `number` is that in `links`. `tables`: children tables that are not empty; `entries`: children in them;
`forwarded`: events sent on; `ip_messages`: what IP multicast from the same sources costs."""

HISTOGRAMS = "kind string, figure string, value double, count long"
"""How many peers or core links have which value, of each of the figures of `stress`."""

CHURN = "group int, killed int, cut_off int, orphans int, messages long, max_ms double, mean_ms double"
"""What the death of a share of all peers does to each group, over all its trees: members that were `killed`, those that
live and no longer hear the root, peers that lost a parent, their Joins and the answers, and how long these travel."""

PARTIALS = "kind string, block int, types string, numbers binary, sums binary"
"""What one task adds to sums over all: `numbers` inside one block, uint16, and their sums, one figure after another,
each as the type that `types` names with two letters (u1, u2, u4, f8). Packed, because as rows of their own they would
be most of the work."""


FILES = "path string, bytes long"
"""The files of a table that tasks wrote, and read, themselves (`stored`)."""


def columns(schema: str) -> list[str]:
    """The names of a schema's columns."""
    return [column.split()[0] for column in schema.split(", ")]
