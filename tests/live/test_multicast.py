"""A site whose policy is `ip_multicast`, on machines of their own: the packets that the kernels counted."""

import asyncio
import socket
import subprocess
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from quillcast.core.ids import ring_distance, topic_id
from quillcast.core.multicast import UdpGroup, contact
from quillcast.live.transport.hello import Identity
from quillcast.live.transport.multicast import _index
from tests.live.stage import Puppet, Wires, eventually
from tests.live.toys import ToyPeer, bundle, toy

EVENTS = 40
CAMPUS = """
name = "campus"

[admission]
members = ["site", "{member}"]
"""
FILE = """
name = "site"

[admission]
members = [{members}]

[[topics]]
pattern = "news/#"
policy = "ip_multicast"
parameters = {{ group = "{group}" }}
"""


def packets(namespace: str) -> tuple[int, int]:
    """The UDP packets that a machine took in and sent, by IPv4 and IPv6."""
    asked = ["ip", "netns", "exec", namespace, "cat", "/proc/net/snmp", "/proc/net/snmp6"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in told.splitlines()]
    names, numbers = (row[1:] for row in rows if row[0] == "Udp:")
    counted = Counter(dict(zip(names, map(int, numbers), strict=True)))
    counted.update({row[0].removeprefix("Udp6"): int(row[1]) for row in rows if row[0].startswith("Udp6")})
    return counted["InDatagrams"], counted["OutDatagrams"]


def rooted_at(root: Puppet, others: list[Identity]) -> str:
    """A topic whose rendezvous point is this peer."""
    nodes, names = [bytes.fromhex(root.node_id), *(each.node_id for each in others)], (f"news/{n}" for n in count())
    return next(name for name in names if min(nodes, key=lambda node: ring_distance(node, topic_id(name))) == nodes[0])


def below_root(root: Puppet, topic: str) -> int:
    """The root's children."""
    return next(len(peer["children"]) for peer in root.ask("tree", topic=topic)["peers"] if peer["root"])


@pytest.mark.parametrize("group", ["239.255.81.67:8167", "[ff15::5143]:8167"], ids=["IPv4", "IPv6"])
def test_one_packet_leaves_for_all_members(network: Wires, tmp_path: Path, group: str) -> None:
    identities = [Identity.new() for _ in range(3)]
    file = tmp_path / "site.toml"
    file.write_text(FILE.format(group=group, members=", ".join(f'"{each.node_id.hex()}"' for each in identities)))
    machines = [network.host() for _ in range(4)]
    puppets: list[Puppet] = []
    try:
        (namespace, listen), *others = machines
        first = Puppet(tmp_path / "0", namespace=namespace, listen=listen, data=str(tmp_path / "data"))
        puppets.append(first.arrive())
        first.ask("manage_scope", file=str(file))
        topic = rooted_at(first, identities)
        for number, ((namespace, listen), identity) in enumerate(zip(others, identities, strict=True), 1):
            scope, secret = f"site@{first.address}", identity.secret.hex()
            runtime = tmp_path / str(number)
            puppets.append(Puppet(runtime, namespace=namespace, listen=listen, scope=scope, identity=secret))
        for member in puppets[1:]:
            member.arrive()
        for member in puppets[1:]:
            member.order("subscribe", topic=topic)
        for member in puppets[1:]:
            member.answer()
        eventually(lambda: below_root(first, topic) == 1, "the scope hangs below the root by one member")
        first.ask("say", topic=topic, text="begin:0", wait="stable")
        before = [packets(namespace) for namespace, _ in machines]
        for number in range(EVENTS):
            first.ask("say", topic=topic, text=f"site:{number}", wait="root")
        first.ask("say", topic=topic, text="end:0", wait="stable")
        for member in puppets[1:]:
            assert member.ask("report", topic=topic)["counts"]["site"] == EVENTS
        after = [packets(namespace) for namespace, _ in machines]
        came = [after[at][0] - before[at][0] for at in range(4)]
        left = [after[at][1] - before[at][1] for at in range(4)]
        assert left[0] == 0, "it is no member"
        assert sorted(left[1:]) == [0, 0, EVENTS + 1], "one packet for each bundle, however many members there are"
        assert came == [0, EVENTS + 1, EVENTS + 1, EVENTS + 1]
    finally:
        for puppet in puppets:
            puppet.process.kill()
            puppet.process.communicate()


def test_a_sender_in_the_superscope_reaches_all_members_at_once_where_the_file_says_so(
    network: Wires, tmp_path: Path
) -> None:
    sender, *identities = [Identity.new() for _ in range(4)]
    campus, site = tmp_path / "campus.toml", tmp_path / "site.toml"
    campus.write_text(CAMPUS.format(member=sender.node_id.hex()))
    text = FILE.format(group="239.255.81.67:8167", members=", ".join(f'"{each.node_id.hex()}"' for each in identities))
    above = 'superscopes = ["campus"]\n\n[channels]\nmulticast = true\n\n[admission]'
    site.write_text(text.replace("[admission]", above))
    machines, puppets, numbers = [network.host() for _ in range(5)], list[Puppet](), count()
    try:
        (namespace, listen), *others = machines
        first = Puppet(tmp_path / "0", namespace=namespace, listen=listen, data=str(tmp_path / "data"))
        puppets.append(first.arrive())
        for file in (campus, site):
            first.ask("manage_scope", file=str(file))
        topic = rooted_at(first, [sender, *identities])
        for number, ((namespace, listen), identity) in enumerate(zip(others, [sender, *identities], strict=True), 1):
            scope, secret = f"{'campus' if identity is sender else 'site'}@{first.address}", identity.secret.hex()
            member = Puppet(tmp_path / str(number), namespace=namespace, listen=listen, scope=scope, identity=secret)
            puppets.append(member.arrive())
        for member in puppets[1:]:
            member.ask("subscribe", topic=topic)
        eventually(lambda: below_root(first, topic) == 1, "the campus hangs below the root by one member")

        def sends() -> int:
            """The packets that the sender sends for one event."""
            before = packets(machines[1][0])[1]
            first.ask("say", topic=topic, text=f"begin:{next(numbers)}", wait="stable")
            return packets(machines[1][0])[1] - before

        eventually(lambda: sends() == 1, "the sender has the key of the group")
        before = [packets(namespace) for namespace, _ in machines]
        for number in range(EVENTS):
            first.ask("say", topic=topic, text=f"site:{number}", wait="stable")
        for member in puppets[1:]:
            assert member.ask("report", topic=topic)["counts"]["site"] == EVENTS
        after = [packets(namespace) for namespace, _ in machines]
        left = [after[at][1] - before[at][1] for at in range(5)]
        assert left == [0, EVENTS, 0, 0, 0], "no member of the site passes anything on by multicast"
        came = [after[at][0] - before[at][0] for at in range(2, 5)]
        assert came == [2 * EVENTS] * 3, "one packet for each event, at the sockets of both groups of a member"
    finally:
        for puppet in puppets:
            puppet.process.kill()
            puppet.process.communicate()


GROUP = str(UdpGroup("239.255.81.67", 18167, 1, 1400, 2_000_000))


def test_a_sender_keeps_to_its_pace_and_says_when_there_is_room_again() -> None:
    async def main() -> None:
        async with toy() as alice, toy() as bob:
            for each in (alice, bob):
                each.links.multicast.take_part({GROUP: b"k" * 32})
            to, began = contact(GROUP), alice.pump.loop.time()
            sent = fill(alice)
            assert alice.links.room(to) <= 0
            await alice.until(lambda: to.node_id in alice.rooms[1:])
            await bob.until(lambda: len(bob.bundles) == sent)
            assert alice.pump.loop.time() - began > 0.9 * (sent * 20_000 / 2_000_000) - 0.01
            alice.links.multicast.take_part({})
            assert alice.links.room(to) == 0

    asyncio.run(main())


def fill(sender: ToyPeer) -> int:
    """Carry bundles to the group as long as there is room; returns their number."""
    to, sent = contact(GROUP), 0
    while sender.links.room(to) > 0:
        sender.links.way(to).carry(bundle(20_000, sent))
        sent += 1
    return sent


def test_an_interface_is_found_by_its_address() -> None:
    loopback = socket.if_nametoindex("lo")
    assert [_index(each) for each in ("127.0.0.1", "::1", "0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "name")] == [
        loopback, loopback, 0, 0, 0, 0, 0
    ]  # fmt: skip


def test_a_group_that_cannot_be_joined_is_a_problem_and_takes_nothing() -> None:
    async def main() -> None:
        async with toy() as alice:
            alice.links.multicast.interface = "192.0.2.1"  # no address of this machine
            alice.links.multicast.take_part({GROUP: b"k" * 32})
            assert alice.links.room(contact(GROUP)) == 0
            assert "cannot take part in multicast, bundles come over links" in alice.links.problems[-1]

    asyncio.run(main())
