"""QuickSilver, *Constructing the Dissemination Structure*: the campus example, figures 15 to 19.

X is the campus, P, Q and R are departments, A to E laptops. The topic t is rooted at X. A publishes, all others
subscribe.
"""

from quillcast.protocol.scopes.labels import Path
from quillcast.protocol.scopes.records import Record, decode
from tests.protocol.scopes.network import Network, Tree, peer, scope, topic
from tests.transcripts.transcript import compare

T = topic("t")
DEPARTMENTS = {"P": "BA", "Q": "CD", "R": "E"}


class Campus(Network):
    """Figure 15; the laptops register in the order in which they are named."""

    def __init__(self) -> None:
        super().__init__()
        chain = {"policy": lambda topic: Tree(1)}
        self.add_scope("X", **chain)
        for department, laptops in DEPARTMENTS.items():
            self.add_scope(department, ["X"], **chain)
            self.settle()
            for laptop in laptops:
                self.add_peer(laptop, [department])
                self.role(laptop, T, "X", publishes=laptop == "A", subscribes=laptop != "A")
                self.settle()

    def name(self, at: str, path: Path, depth: int) -> str:
        """A path in letters: labels mean something in the scope that gave them only."""
        names = list[str]()
        for label in path:
            owner = "X" if depth + len(names) == 1 else names[-1] if names else self.department(at)
            names.append(self.managers[scope(owner).id].state.members[label].party.name)
        return ":".join(names)

    def department(self, laptop: str) -> str:
        return next(department for department, laptops in DEPARTMENTS.items() if laptop in laptops)

    def shown(self, at: str, record: Record) -> str:
        levels = enumerate(record.pairs, record.top)
        return ", ".join("-".join(self.name(at, (label,), depth) for label in pair[:2]) for depth, pair in levels)

    def travel(self, at: str, record: bytes) -> list[str]:
        """What happens to a bundle from a laptop on: figure 19 as lines."""
        lines = [f"{at}  t,k,({self.shown(at, decode(record))})"]
        for channel, changed in self.peers[peer(at).id].arrived(T, record):
            (_, depth, origin, *_), to = channel.constraints[0], channel.spec.peer.node_id[:1].decode()
            ends = f"{self.name(at, channel.label.source, depth)}-{self.name(to, channel.label.target, depth)}"
            lines.append(f"   channel {ends}, t:{self.name(at, (origin,), depth)}")
            lines += self.travel(to, changed)
        return lines

    def publish_at_a(self) -> list[str]:
        return self.travel("A", self.peers[peer("A").id].record(T))


def test_figure_19_the_records_of_a_bundle_before_and_after_d_leaves() -> None:
    campus = Campus()
    lines = ["# A publishes", *campus.publish_at_a(), ""]
    campus.leave("D")
    campus.settle()
    lines += ["# D leaves, and A publishes again", *campus.publish_at_a()]
    compare("figure-19.txt", "\n".join(lines) + "\n")


def test_figure_18_what_each_laptop_keeps() -> None:
    campus = Campus()
    assert {controller.me.name: len(controller.channels) for controller in campus.peers.values()} == {
        "A": 1,
        "B": 1,
        "C": 1,
        "D": 1,
        "E": 0,
    }
    assert campus.publish("A", T) == {"B": 1, "C": 1, "D": 1, "E": 1}
