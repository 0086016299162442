"""Real processes under load: forwarders and a root are killed, stopped, and cut off in silence."""

from typing import Any

import pytest

from tests.live.stage import SMALL_RING, Puppet, Stage, Wires, eventually

pytestmark = [pytest.mark.live, pytest.mark.slow]

PEERS = 12
SUBSCRIBERS = 5
EVENTS, PER_S = 1600, 200.0
RING = SMALL_RING


class Play:
    """A network under load: who publishes, who subscribes, and who does neither and may fail."""

    def __init__(self, puppets: list[Puppet]) -> None:
        self.by_id = {puppet.node_id: puppet for puppet in puppets}
        self.publisher, self.subscribers = puppets[0], puppets[1 : 1 + SUBSCRIBERS]
        self.idle = puppets[1 + SUBSCRIBERS :]
        self.topic = ""

    def begin(self, victim: str, publishers: int = 1) -> Puppet:
        """Find a topic whose tree has an idle peer as `victim` (root or forwarder), and publish in it."""
        self.tags = [f"p{number}" for number in range(publishers)] if publishers > 1 else ["p"]
        for number in range(40):
            self.topic = f"play/{number}"
            for subscriber in self.subscribers:
                subscriber.order("subscribe", topic=self.topic)
            for subscriber in self.subscribers:
                subscriber.answer()
            found = self._victim(victim)
            if found is not None:
                if publishers > 1:
                    self.publisher.ask("publish_in_turns", topic=self.topic, tags=self.tags, count=EVENTS, per_s=PER_S)
                else:
                    self.publisher.ask("publish", topic=self.topic, tag="p", count=EVENTS, per_s=PER_S)
                eventually(lambda: self.publisher.ask("progress").get(self.tags[0], 0) > 100, "events flow")
                return found
            for subscriber in self.subscribers:
                subscriber.ask("unsubscribe", topic=self.topic)
        raise AssertionError(f"no idle {victim} in 40 trees")

    def _victim(self, role: str) -> Puppet | None:
        tree = eventually(self._whole_tree, "the tree stands")
        for peer in tree["peers"]:
            is_root = peer["parent"] is None
            if is_root == (role == "root") and peer["children"] and self.by_id[peer["node_id"]] in self.idle:
                return self.by_id[peer["node_id"]]
        return None

    def _whole_tree(self) -> dict[str, Any] | None:
        tree: dict[str, Any] = self.publisher.ask("tree", topic=self.topic)
        return tree if tree["complete"] else None

    def end(self) -> None:
        """Everybody gets everything once, in order."""
        assert self.publisher.ask("finish", tag=self.tags[0]) == EVENTS
        every = dict.fromkeys(self.tags, EVENTS)
        for subscriber in self.subscribers:
            eventually(
                lambda subscriber=subscriber: subscriber.ask("report", topic=self.topic)["next"] == every,
                f"{subscriber.node_id[:8]} has the last event",
            )
            report = subscriber.ask("report", topic=self.topic)
            assert report["wrong"] == []
            assert report["lost"] == 0
            assert report["counts"] == {tag: EVENTS - report["first"][tag] for tag in self.tags}


@pytest.fixture
def play(stage: Stage) -> Play:
    return Play(stage.start_many(PEERS, config=RING))


@pytest.mark.parametrize("role", [pytest.param("forwarder", marks=pytest.mark.long), "root"])
def test_a_killed_peer_loses_and_repeats_nothing(play: Play, role: str) -> None:
    play.begin(role).kill()
    play.end()


@pytest.mark.long
def test_a_killed_root_loses_and_repeats_nothing_of_publishers_that_share_blocks(play: Play) -> None:
    play.begin("root", publishers=20).kill()
    play.end()


@pytest.mark.parametrize("role", ["forwarder", pytest.param("root", marks=pytest.mark.long)])
def test_a_paused_peer_loses_and_repeats_nothing(play: Play, role: str) -> None:
    victim = play.begin(role)
    victim.stop()
    published = play.publisher.ask("progress")["p"]
    for subscriber in play.subscribers:
        eventually(
            lambda subscriber=subscriber: subscriber.ask("report", topic=play.topic)["next"].get("p", 0) > published,
            "events flow around the paused one",
        )
    victim.go_on()
    play.end()
    assert victim.ask("status")["active"]


@pytest.mark.parametrize("role", [pytest.param("forwarder", marks=pytest.mark.long), "root"])
def test_a_peer_that_is_silently_cut_off_loses_and_repeats_nothing(stage: Stage, network: Wires, role: str) -> None:
    def spawn() -> Puppet:
        namespace, listen = network.host()
        return stage.spawn(namespace=namespace, listen=listen, config=RING)

    first = spawn().arrive()
    play = Play([first, *(puppet.arrive() for puppet in [spawn() for _ in range(PEERS - 1)])])
    victim = play.begin(role)
    assert victim.namespace is not None
    network.cut(victim.namespace)
    play.end()
    network.heal(victim.namespace)
    victim.order("tree", topic=play.topic)
    victim.answer()
    eventually(lambda: len(victim.ask("status")["leaf_set"]) == 4, "the one that was cut off finds back")
