"""Every figure of a finished run, computed again from its tables, with SciPy's shortest paths and plain Python.

It takes links, places, peers and trees from the tables and imports nothing of quillcast, so it shares no code with the
kernels: a mistake there, or in what the stages make of them, is a difference here.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

Row = dict[str, Any]
Load = dict[str, dict[int, float]]
"""What one event of each group costs: by figure, and by peer or link."""

ACCESS_MS = 1.0  # docs/topologies.md: between a peer and its router


class Network:
    """Delays and paths between peers, from the tables of a run."""

    def __init__(self, folder: Path) -> None:
        links = read(folder, "links")
        places = len(read(folder, "places"))
        ends = [(link["from_place"], link["to_place"]) for link in links]
        assert len({frozenset(pair) for pair in ends}) == len(links), "two links between the same routers"
        self.link = {pair: link["link"] for link, (a, b) in zip(links, ends, strict=True) for pair in ((a, b), (b, a))}
        graph = csr_matrix(([link["delay_ms"] for link in links], tuple(zip(*ends, strict=True))), (places, places))
        self.way_ms, self.before = dijkstra(graph, directed=False, return_predecessors=True)
        peers = sorted(read(folder, "peers"), key=lambda row: row["peer"])
        self.place = [row["place"] for row in peers]
        self.domain = [row["domain"] for row in peers]

    def delay(self, a: int, b: int) -> float:
        """In ms, over the access links of both."""
        return 0.0 if a == b else float(self.way_ms[self.place[a], self.place[b]]) + 2 * ACCESS_MS

    @cache  # noqa: B019 (as long as the tests)
    def links(self, source: int, target: int) -> tuple[int, ...]:
        """The core links between two places."""
        on_the_way = []
        while target != source:
            before = int(self.before[source, target])
            on_the_way.append(self.link[before, target])
            target = before
        return tuple(on_the_way)


class Tree:
    """A row of the table of trees."""

    def __init__(self, row: Row) -> None:
        self.source, self.weight = row["source"], row["weight"]
        self.parent = dict(zip(row["nodes"], row["parents"], strict=True))
        (self.root,) = (node for node, above in self.parent.items() if above < 0)
        self.members = {node for node, member in zip(row["nodes"], row["member"], strict=True) if member}
        self.extra = list(zip(row["extra_from"], row["extra_to"], strict=True))
        self.children = Counter(above for above in self.parent.values() if above >= 0)
        self.kept = {
            figure: dict(zip(row["nodes"], row[figure], strict=True)) if row[figure] is not None else self.children
            for figure in ("state", "joins")
        }

    def copies(self) -> list[tuple[int, int]]:
        """Who sends an event to whom."""
        return [(above, node) for node, above in self.parent.items() if above >= 0] + self.extra

    def path(self, node: int) -> list[int]:
        """From the root to this node."""
        nodes = [node]
        while self.parent[nodes[-1]] >= 0:
            nodes.append(self.parent[nodes[-1]])
        return nodes[::-1]


class Oracle:
    """The figures of one policy in a run.

    Args:
        network: of the run.
        rows: the policy's trees.
        publishers: of each group.
    """

    def __init__(self, network: Network, rows: list[Row], publishers: dict[int, list[int]]) -> None:
        self.network, self.publishers = network, publishers
        self.trees: dict[int, list[Tree]] = defaultdict(list)
        for row in rows:
            assert len(row["nodes"]) == row["size"]
            self.trees[row["group"]].append(Tree(row))

    def carrying(self, group: int, source: int) -> list[Tree]:
        """The trees for a publisher's events: its own, or those of all publishers."""
        return [tree for tree in self.trees[group] if tree.source in (source, -1)]

    # --- delays

    @cached_property
    def delays(self) -> list[Row]:
        """The rows of the table of delays."""
        return list(self._delays())

    def _delays(self) -> Iterator[Row]:
        for group in self.trees:
            for source in self.publishers[group]:
                trees = self.carrying(group, source)
                copies = [(tree.weight, pair) for tree in trees for pair in self.copies_from(tree, source)]
                children: Counter[int] = Counter()
                for tree in trees:
                    children.update(tree.children)
                domain = self.network.domain
                whole, from_root = (self.ratios(trees, origin) for origin in (source, None))
                yield whole | {
                    "group": group,
                    "source": source,
                    "members": len(trees[0].members),
                    "nodes": len({node for tree in trees for node in tree.parent}),
                    "depth": max(len(tree.path(node)) - 1 for tree in trees for node in tree.parent),
                    "children_max": max(children.values(), default=0),
                    "messages": sum(weight for weight, _ in copies),
                    "border_copies": sum(weight for weight, (a, b) in copies if domain[a] != domain[b]),
                    "rmd_from_root": from_root["rmd"],
                    "rad_from_root": from_root["rad"],
                }

    def ratios(self, trees: list[Tree], source: int | None) -> Row:
        """Delays of a publisher's events, or of each tree's root, relative to IP multicast from there."""
        late, direct, hops = [], [], []
        for tree in trees:
            origin = tree.root if source is None else source
            for member in tree.members - {origin}:
                way = [origin, *tree.path(member)]
                late.append((tree.weight, sum(self.network.delay(a, b) for a, b in pairwise(way))))
                hops.append((tree.weight, sum(a != b for a, b in pairwise(way))))
                direct.append((tree.weight, self.network.delay(origin, member)))
        if not late:
            return dict.fromkeys(("rmd", "rad", "hops", "max_ms", "mean_ms", "ip_max_ms", "ip_mean_ms"), math.nan)
        latest, longest = (max(ms for _, ms in each) for each in (late, direct))
        total, ip_total = (sum(weight * ms for weight, ms in each) for each in (late, direct))
        count = sum(weight for weight, _ in late)
        return {
            "rmd": latest / longest,
            "rad": total / ip_total,
            "hops": sum(weight * each for weight, each in hops) / count,
            "max_ms": latest,
            "mean_ms": total / count,
            "ip_max_ms": longest,
            "ip_mean_ms": ip_total / count,
        }

    @staticmethod
    def copies_from(tree: Tree, source: int) -> list[tuple[int, int]]:
        """Who sends a publisher's event to whom, the publisher to the root first."""
        return [(source, tree.root), *tree.copies()] if source != tree.root else tree.copies()

    # --- loads

    @cached_property
    def loads(self) -> dict[str, Load]:
        """The figures of the table of stress that are not zero, by kind."""
        loads: dict[str, Load] = {kind: defaultdict(lambda: defaultdict(float)) for kind in ("peer", "link")}
        for group, trees in self.trees.items():
            for tree in trees:
                for node, children in tree.children.items():
                    loads["peer"]["tables"][node] += 1
                    loads["peer"]["entries"][node] += children
                for figure, kept in tree.kept.items():
                    for node, count in kept.items():
                        loads["peer"][figure][node] += count
            sources = self.publishers[group]
            for source in sources:
                for tree in self.carrying(group, source):
                    for pair in self.copies_from(tree, source):
                        loads["peer"]["forwarded"][pair[0]] += tree.weight / len(sources)
                        self.send(loads, "messages", pair, tree.weight / len(sources))
                self.send_by_ip(loads, source, trees[0].members - {source}, 1 / len(sources))
        return loads

    def send(self, loads: dict[str, Load], figure: str, pair: tuple[int, int], weight: float) -> None:
        """A message from peer to peer, over two access links and the core."""
        for peer in pair:
            loads["peer"][figure][peer] += weight
        for link in self.network.links(*(self.network.place[peer] for peer in pair)):
            loads["link"][figure][link] += weight

    def send_by_ip(self, loads: dict[str, Load], source: int, members: set[int], weight: float) -> None:
        """An event by IP multicast: once over every link of the merged shortest paths."""
        place = self.network.place
        for peer in members | ({source} if members else set()):
            loads["peer"]["ip_messages"][peer] += weight
        for link in {link for member in members for link in self.network.links(place[source], place[member])}:
            loads["link"]["ip_messages"][link] += weight

    # --- the result

    def figures(self, peers: int, links: int) -> Row:
        """The figures of the policy in the result."""

        def all_of(kind: str, figure: str, count: int) -> list[float]:
            return [self.loads[kind][figure][number] for number in range(count)]

        (access, ip_access), (core, ip_core) = (
            [all_of(kind, figure, count) for figure in ("messages", "ip_messages")]
            for kind, count in (("peer", peers), ("link", links))
        )
        figures: Row = {
            "children_per_group_max": max(row["children_max"] for row in self.delays),
            "messages": sum(access + core),
            "messages_over_ip": sum(access + core) / sum(ip_access + ip_core),
            "link_max": max(access + core),
            "link_max_over_ip": max(access + core) / max(ip_access + ip_core),
            "core_link_max_over_ip": max(core) / max(ip_core),
        }
        figures |= {"link_mean": statistics.mean(access + core), "link_p99": percentile(access + core, 99)}
        for name in ("rad", "rmd", "rad_from_root", "rmd_from_root", "depth", "hops"):
            known = [row[name] for row in self.delays if not math.isnan(row[name])]
            figures |= {f"{name}.{part}": value for part, value in spread(known).items()}
        for name in ("tables", "entries", "state"):
            of_peers = all_of("peer", name, peers)
            told = (statistics.mean(of_peers), statistics.median(of_peers), percentile(of_peers, 99), max(of_peers))
            figures |= {
                f"{name}.{part}": value for part, value in zip(("mean", "median", "p99", "max"), told, strict=True)
            }
        return figures

    def by_size(self) -> list[Row]:
        """The penalty of groups from 2 to 3 members, from 4 to 7, and so on."""
        known = [row for row in self.delays if not math.isnan(row["rad"])]
        rows = []
        for least in (1 << step for step in range(32)):
            chosen = [row for row in known if least <= row["members"] < 2 * least]
            if chosen:
                told = {name: spread([row[name] for row in chosen]) for name in ("rad", "rmd")}
                rows.append({"members_min": least, "members_max": 2 * least - 1, "events": len(chosen), **told})
        return rows


def percentile(values: list[float], share: int) -> float:
    """The smallest value such that so many percent are not above it."""
    return min(value for value in set(values) if 100 * sum(each <= value for each in values) >= share * len(values))


def spread(values: list[float]) -> Row:
    """What is told of a figure of events."""
    return {
        "median": statistics.median(values),
        "p90": percentile(values, 90),
        "p99": percentile(values, 99),
        "max": max(values),
    }


def read(folder: Path, table: str, policy: str | None = None) -> list[Row]:
    """The rows of a table, or those of one policy."""
    chosen = None if policy is None else [("policy", "==", policy)]
    rows: list[Row] = pq.read_table(folder / "tables" / table, filters=chosen).to_pylist()
    return rows
