"""A scope's entry point fails together with its manager, as real processes: a stand-by takes over, and stays."""

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from quillcast.core.ids import ring_distance
from quillcast.live.transport.hello import Identity
from quillcast.protocol.topics.descriptor import described
from tests.live.stage import Puppet, Stage, eventually

pytestmark = [pytest.mark.live, pytest.mark.slow]

MEMBERS = 5
PER_S = 50.0
EVENTS = 1500
POLICIES = ["star", pytest.param("chain", marks=pytest.mark.long)]
FILE = """
name = "site"

[admission]
members = [{members}]

[[topics]]
pattern = "news/#"
policy = "{policy}"
"""


class Site:
    """A scope of puppets, one more that runs its manager, and one outside that publishes."""

    def __init__(self, stage: Stage, folder: Path, policy: str) -> None:
        secret = [secrets.token_hex(32) for _ in range(MEMBERS + 2)]
        ids = [Identity.of_secret(bytes.fromhex(each)).node_id for each in secret]
        self.topic = rooted_at(ids[0], ids)
        self.outside, self.manager = (
            stage.start(identity=each, data=str(folder / str(at))) for at, each in enumerate(secret[:2])
        )
        file = folder / "site.toml"
        members = ", ".join(f'"{each.hex()}"' for each in ids[2:])
        file.write_text(FILE.format(members=members, policy=policy))
        self.manager.ask("manage_scope", file=str(file))
        scope = f"site@{self.manager.address}"
        self.members = {each.node_id: each for each in (stage.start(identity=one, scope=scope) for one in secret[2:])}
        for member in self.members.values():
            member.ask("subscribe", topic=self.topic)
        self.outside.ask("publish", topic=self.topic, tag="p", count=EVENTS, per_s=PER_S)
        self.hear_on()

    def hear_on(self) -> None:
        """Wait until all have an event that was published after this."""
        published = self.outside.ask("progress").get("p", 0)
        for member in self.members.values():
            eventually(lambda member=member: self.report(member)["next"].get("p", 0) > published, "events flow")

    def report(self, member: Puppet) -> dict[str, Any]:
        report: dict[str, Any] = member.ask("report", topic=self.topic)
        return report

    def gaps(self) -> list[float]:
        """The longest time without an event at each member since this was asked last."""
        return [member.ask("gap", topic=self.topic) for member in self.members.values()]

    def settled(self) -> str:
        """The one member whose parent is none, once all members are in the tree and there is one such."""

        def entry() -> str | None:
            tree = self.outside.ask("tree", topic=self.topic)
            here = {each["node_id"]: each["parent"] for each in tree["peers"] if each["node_id"] in self.members}
            out = [each for each, parent in here.items() if parent not in self.members]
            return out[0] if here.keys() == self.members.keys() and len(out) == 1 else None

        found: str = eventually(entry, "all members are in the tree, and one leads out")
        return found

    def end(self) -> None:
        """Every member got every event once, in order."""
        assert self.outside.ask("finish", tag="p") == EVENTS
        for member in self.members.values():
            eventually(lambda member=member: self.report(member)["next"] == {"p": EVENTS}, "the last event came")
            report = self.report(member)
            assert (report["wrong"], report["lost"]) == ([], 0)
            assert report["counts"] == {"p": EVENTS - report["first"]["p"]}


def rooted_at(root: bytes, ids: Iterable[bytes]) -> str:
    """A topic whose rendezvous point is this one of the peers."""
    names = (f"news/{number}" for number in range(1000))
    return next(name for name in names if min(ids, key=lambda each: ring_distance(each, described(name).topic)) == root)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stand_by_takes_over_from_a_killed_entry_point_while_the_manager_is_stopped(
    stage: Stage, tmp_path: Path, policy: str
) -> None:
    site = Site(stage, tmp_path, policy)
    entry = site.settled()
    site.manager.stop()
    site.gaps()
    site.members.pop(entry).kill()
    site.hear_on()
    assert max(site.gaps()) < 1.0
    assert site.settled() != entry
    site.end()


@pytest.mark.parametrize("policy", POLICIES)
def test_an_entry_point_that_was_stopped_returns_and_one_link_leads_out(
    stage: Stage, tmp_path: Path, policy: str
) -> None:
    site = Site(stage, tmp_path, policy)
    entry = site.settled()
    stopped = site.members.pop(entry)
    site.manager.stop()
    site.gaps()
    stopped.stop()
    site.hear_on()
    assert max(site.gaps()) < 6.0
    heir = site.settled()
    assert heir != entry
    stopped.go_on()
    site.members[entry] = stopped
    site.settled()
    site.hear_on()
    site.manager.go_on()
    site.settled()
    site.end()
