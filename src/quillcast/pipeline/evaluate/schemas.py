"""The tables of an evaluation, as Spark names types. Peers, places, links and groups are named by their numbers."""

PLACES = "place int, domain int, attachable boolean, name string"
"""Where peers may stand: routers of a graph, rows of a measured matrix, or points of a space."""

LINKS = "link int, from_place int, to_place int, delay_ms float"
"""Core links, each of which joins two routers; delays are one-way. Empty where the topology is no graph."""

PEERS = "peer int, id long, place int, domain int"
"""One row per peer, in the order of their nodeIds. `id`: the first 64 bits, as a signed number."""

GROUPS = "group int, name string, key long, members int, task int"
"""One row per group, the largest first. `name`: where real membership has one. `key`: the
topicId's first 64 bits, as a signed number. Groups of equal `task`
are worked on together; tasks start in their order, so that the largest groups start first."""

TREES = (
    "group int, tree int, node int, parent int, member boolean, redundant boolean, weight double, state int, joins int"
)
"""How each group's events travel: one row per message that an event costs, and one per root.

`tree`: a policy may spread a group over several, each of which carries the share `weight` of its events. `node`: the
peer that is sent the event by `parent`, which is -1 for the root. `member`: it subscribed. `redundant`: it has the
event from elsewhere already; such rows follow the rest of their tree. `state`: entries it keeps for this group's
membership; `joins`: messages it handled while members joined. Each node stands after its parent."""

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

PARTIALS = "kind string, block int, numbers binary, sums binary"
"""What one task adds to sums over all: `numbers` of one block, uint32, and their `sums`, float64 [figures, numbers].
Packed, because as rows of their own they would be most of the work."""


def columns(schema: str) -> list[str]:
    """The names of a schema's columns."""
    return [column.split()[0] for column in schema.split(", ")]
