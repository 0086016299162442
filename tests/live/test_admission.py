"""A second machine in one line: who is admitted, who is not, and what both sides say."""

import asyncio
import re
import shlex
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from quillcast.core.errors import LocalError, Unreachable
from quillcast.live.admission.applications import Admissions, apply
from quillcast.live.admission.authority import check_attributes
from quillcast.live.admission.joinline import JoinLine
from quillcast.live.admission.keyring import MEMBERS_MAX, Keyring
from quillcast.live.transport import certificates
from quillcast.live.transport.certificates import read_member
from quillcast.live.transport.hello import Identity
from tests.cli.commands import Command
from tests.live.machines import Machine, Machines, machines
from tests.live.stage import ROOT, PuppetError, eventually
from tests.live.toys import ToyPeer, member, run, toy

pytestmark = pytest.mark.live

S, DAY = 10**9, 86400 * 10**9


# --- the exchange, with clocks that the test gives


@asynccontextmanager
async def holder(folder: Path, wall_ns: Callable[[], int] = time.time_ns) -> AsyncIterator[tuple[ToyPeer, Keyring]]:
    """A peer that admits others, and where it keeps its tokens."""
    keyring = Keyring(folder)
    authority = keyring.make_authority("toys", wall_ns())
    async with toy(membership=member(authority, wall_ns()), wall_ns=wall_ns) as peer:
        peer.links.handshake.answer_application = Admissions("toys", authority, keyring, wall_ns).admit
        yield peer, keyring


def line_to(peer: ToyPeer, keyring: Keyring, token: str) -> JoinLine:
    assert keyring.fingerprint is not None
    return JoinLine(peer.contact.address, keyring.fingerprint, token, "toys")


async def refusal(line: JoinLine, peer: ToyPeer, *, wall_ns: Callable[[], int] = time.time_ns) -> tuple[str, str]:
    """The error that an applicant gets, and the line that the holder of the credential prints."""
    with pytest.raises(Unreachable) as refused:
        await apply(line, [Identity.new()], wall_ns=wall_ns, timeout_s=10)
    async with asyncio.timeout(10):
        while peer.links.unauthenticated_count or not peer.links.problems:  # noqa: ASYNC110 - nothing is handed in
            await asyncio.sleep(0)
    assert len(peer.links.problems) == 1
    assert "\n" not in str(refused.value) + peer.links.problems[0]
    return str(refused.value), peer.links.problems[0]


def test_a_token_gives_certificates_that_links_take(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with holder(tmp_path) as (alice, keyring):
            bobs = [Identity.new() for _ in range(MEMBERS_MAX)]
            attributes = {"organization": "North", "country": "SE"}
            line = line_to(alice, keyring, keyring.issue_token(900, time.time_ns(), attributes))
            admitted = await apply(line, bobs, wall_ns=time.time_ns, timeout_s=10)
            key = alice.links.handshake.tls.authority_key
            places = {read_member(certificate, key).node_id for certificate in admitted.certificates}
            assert len(places) == MEMBERS_MAX
            assert alice.links.counters["admitted"] == 1
            joined = Keyring(tmp_path / "bob")
            joined.trust(admitted.authority)
            joined.add([(bobs[0].secret, admitted.certificates[0])])
            membership = joined.lock_identity()
            async with toy(membership=membership) as bob:
                bob.say(alice, "let in")
                await alice.until(lambda: alice.texts == ["let in"])
                certificate = alice.links.certificate(bob.contact.node_id)
                assert bob.links.certificate(bob.contact.node_id) == certificate
                told = certificates.attributes(certificate)
                assert told == attributes | {"common_name": bob.contact.node_id.hex()}
            membership.close()

    run(scenario())


def test_attributes_that_a_certificate_cannot_have_are_refused() -> None:
    check_attributes({"organization": "North", "country": "SE"})
    for name, value, why in (
        ("organisation", "North", "is not a certificate attribute that you can set"),
        ("country", "Sweden", "two letters"),
    ):
        with pytest.raises(LocalError, match=why):
            check_attributes({name: value})


@pytest.mark.parametrize(
    ("later_s", "used", "text"),
    [(901, False, "its token expired"), (60, True, "its token was used"), (901, True, "its token was used")],
)
def test_an_expired_or_used_token_is_refused_on_both_sides(tmp_path: Path, later_s: int, used: bool, text: str) -> None:
    def later() -> int:
        return time.time_ns() + later_s * S

    async def scenario() -> None:
        async with holder(tmp_path, later) as (alice, keyring):
            token = keyring.issue_token(900, time.time_ns())
            if used:
                keyring.use_token(token, time.time_ns())
            here, there = await refusal(line_to(alice, keyring, token), alice, wall_ns=later)
            assert text in here
            assert text in there
            assert alice.links.counters["refused_token"] == 1

    run(scenario())


def test_a_token_is_not_sent_to_a_peer_with_a_wrong_fingerprint(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with holder(tmp_path) as (alice, keyring):
            token = keyring.issue_token(900, time.time_ns())
            right = line_to(alice, keyring, token)
            here, there = await refusal(msgspec.structs.replace(right, fingerprint="a" * 32), alice)
            assert f"its fingerprint is {right.fingerprint}, not {'a' * 32}:" in here
            assert "it refused this peer" in there
            await apply(right, [Identity.new()], wall_ns=time.time_ns, timeout_s=10)  # it was not used up

    run(scenario())


@pytest.mark.parametrize(("days", "text"), [(-1, "its clock is 1 day ahead"), (1, "its clock is 1 day behind")])
def test_a_clock_off_by_a_day_is_named_and_the_token_stays_good(tmp_path: Path, days: int, text: str) -> None:
    async def scenario() -> None:
        async with holder(tmp_path) as (alice, keyring):
            token = keyring.issue_token(900, time.time_ns())
            line = line_to(alice, keyring, token)
            here, there = await refusal(line, alice, wall_ns=lambda: time.time_ns() + days * DAY)
            assert text in here
            assert text in there  # what he says of her clock
            keyring.use_token(token, time.time_ns())

    run(scenario())


def test_a_member_without_the_credential_cannot_admit_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with holder(tmp_path) as (alice, keyring):
            alice.links.handshake.answer_application = None
            here, _ = await refusal(line_to(alice, keyring, "token"), alice)
            assert "this peer cannot admit others" in here

    run(scenario())


def test_a_line_to_a_peer_without_a_credential_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with toy() as plain:
            here, there = await refusal(JoinLine(plain.contact.address, "a" * 32, "t", "toys"), plain)
            assert "it does not use TLS" in here
            assert "it speaks TLS" in there

    run(scenario())


# --- between machines


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Machines]:
    with machines(tmp_path) as made:
        yield made


def listening(machine: Machine, *arguments: str) -> tuple[Command, str]:
    """A peer that others reach, and the line that it prints."""
    command = machine.start("node", "--listen", f"{machine.host}:0", *arguments)
    assert f"at {machine.host}:" in command.line()
    found = re.fullmatch(r'quillcast node --join "(quillcast://\S+)"', command.line())
    assert found is not None
    return command, found[1]


@pytest.mark.slow
def test_a_second_machine_joins_with_the_line_and_later_without_it(net: Machines) -> None:
    alice, bob = net.make(), net.make()
    _, line = listening(alice)
    subscriber = bob.start("sub", "sport/tennis", "--count", "3", "--join", line)
    assert f"at {bob.host}:" in subscriber.line(2)
    assert alice.run("pub", "sport/tennis", "from alice")[0] == 0
    assert bob.run("pub", "sport/tennis", "from bob")[0] == 0  # no line, and while the other one runs
    assert bob.run("pub", "sport/tennis", "again", "--join", line)[0] == 0  # its token is used, and not needed
    assert subscriber.end()[:2] == (0, "from alice\nfrom bob\nagain\n")
    kept = {path.name for path in (bob.config / "quillcast" / "default").iterdir()}
    assert "network.pem" not in kept


@pytest.mark.slow
def test_the_commands_of_the_readme_for_a_second_machine_work(net: Machines) -> None:
    """Only the address of the first machine and the line that it prints are put in place of those printed there."""
    made = {"first": net.make(), "second": net.make()}
    text = (ROOT / "README.md").read_text()
    lines = re.findall(r"^(first|second)\$ +quillcast (.+?)(?: {2,}#.*)?$", text, re.MULTILINE)
    assert [where for where, _ in lines] == ["first", "second", "first"]
    node, subscribe, publish = (
        (made[where], shlex.split(words.replace("192.0.2.1", made["first"].host))) for where, words in lines
    )
    first = node[0].start(*node[1])
    first.line()
    joining = first.line().split('"')[1]
    subscriber = subscribe[0].start(*[joining if word.startswith("quillcast://") else word for word in subscribe[1]])
    assert subscriber.line(2).startswith("subscribed to ")
    assert publish[0].run(*publish[1])[0] == 0
    assert subscriber.line() == publish[1][-1]


@pytest.mark.slow
def test_a_line_serves_one_machine_and_the_next_one_gets_another(net: Machines) -> None:
    alice, bob, carol = net.make(), net.make(), net.make()
    node, line = listening(alice)
    kept, bob.environment["XDG_CONFIG_HOME"] = bob.environment["XDG_CONFIG_HOME"], "/dev/null"
    code, _, err = bob.run("pub", "t", "x", "--join", line)
    assert code == 6, "it could not keep what it would be given"
    assert "cannot be used: Not a directory" in err
    bob.environment["XDG_CONFIG_HOME"] = kept
    assert bob.run("pub", "t", "x", "--join", line)[0] == 0
    code, out, err = carol.run("pub", "t", "x", "--join", line)
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert f"cannot join through {line.split('/')[2]}: it refused this peer" in err
    assert "its token was used" in err
    assert "its token was used" in node.line(2) + node.line(2)  # the first one says what to do with the line
    assert not (carol.config / "quillcast").exists()
    code, fresh, _ = alice.run("node", "--invite")
    assert code == 0
    assert carol.run("pub", "t", "x", "--join", fresh.strip())[0] == 0


@pytest.mark.slow
def test_data_folders_remember_credential_admission_and_identity(net: Machines) -> None:
    alice, bob = net.make(), net.make()
    first = alice.puppet(listen=f"{alice.host}:0", data=str(alice.folder / "data"), make_credential=True)
    second = bob.puppet(join=first.ask("invite"), data=str(bob.folder / "data"))
    ids, credential = (first.node_id, second.node_id), first.ask("status")["credential"]
    assert second.ask("status")["credential"] == credential
    assert second.address.startswith(f"{bob.host}:")
    assert second.leave() == 0
    second = bob.puppet(data=str(bob.folder / "data"))
    assert first.leave() == 0
    first = alice.puppet(listen=f"{alice.host}:0", data=str(alice.folder / "data"))
    assert (first.node_id, second.node_id) == ids
    assert first.ask("status")["credential"] == credential
    eventually(lambda: len(first.ask("status")["leaf_set"]) == 1, "they find each other again")
    second.ask("subscribe", topic="t")
    first.ask("publish", topic="t", tag="a", count=500, per_s=0)
    eventually(lambda: second.ask("report", topic="t")["next"] == {"a": 500}, "everything came")
    assert not (alice.config / "quillcast").exists()


@pytest.mark.slow
def test_peers_that_were_not_admitted_cannot_connect(net: Machines) -> None:
    alice, mallory = net.make(), net.make()
    node, line = listening(alice)
    address = JoinLine.parse(line).address
    node.line(2)
    code, _, err = mallory.run("pub", "t", "x", "--contact", address)
    assert code == 2
    assert "peers beyond it must have admitted this one: --join once" in err
    other, _ = listening(mallory)  # a network of its own
    code, _, err = mallory.run("pub", "t", "x", "--contact", address)
    assert code == 4
    assert "its certificate is not of this network" in err
    assert "it belongs to another network" in node.line(2)
    assert other.process.poll() is None


@pytest.mark.slow
def test_a_plain_peer_beside_members_learns_what_it_is_missing(net: Machines) -> None:
    alice = net.make()
    _, line = listening(alice, "--data", str(alice.folder / "data"))
    code, _, err = alice.run("pub", "t", "x")
    assert code == 2
    assert "on this machine admits only peers with its credential" in err
    assert "--join" in err
    assert alice.run("pub", "t", "x", "--join", line)[0] == 0


@pytest.mark.slow
def test_a_member_that_finds_no_peer_says_so_and_starts_no_network(net: Machines) -> None:
    alice, bob = net.make(), net.make()
    first = alice.puppet(listen=f"{alice.host}:0", make_credential=True)
    line = first.ask("invite")
    assert bob.run("pub", "t", "x", "--join", line)[0] == 0
    first.leave()
    code, _, err = bob.run("pub", "t", "x")
    assert code == 4
    assert f"cannot reach {JoinLine.parse(line).address}: nobody listens there" in err


@pytest.mark.slow
def test_a_line_that_expired_is_refused_by_the_holders_clock(net: Machines) -> None:
    alice, bob = net.make(), net.make()
    first = alice.puppet(listen=f"{alice.host}:0", make_credential=True, live={"token_life_s": 1e-9})
    with pytest.raises(PuppetError, match="its token expired"):
        bob.puppet(join=first.ask("invite"))
    assert first.ask("status")["counters"]["refused"]["token"] == 1


@pytest.mark.slow
def test_a_node_that_listens_everywhere_advertises_a_reachable_address(net: Machines) -> None:
    alice, bob = net.make(), net.make()
    node = alice.start("node", "--listen", "0.0.0.0:4000")
    assert f"at {alice.host}:4000, " in node.line()
    line = node.line().split('"')[1]
    assert JoinLine.parse(line).address == f"{alice.host}:4000"
    assert bob.run("pub", "t", "x", "--join", line)[0] == 0


@pytest.mark.slow
def test_a_peer_behind_a_forwarded_port_is_reached_there_by_all(net: Machines) -> None:
    alice, gate, bob, carol = (net.make() for _ in range(4))
    public = f"{gate.host}:5000"
    gate.forward(5000, to=f"{alice.host}:4000")
    node = alice.start("node", "--listen", "0.0.0.0:4000", "--advertise", public)
    assert f"at {public}, " in node.line()
    line = node.line().split('"')[1]
    assert JoinLine.parse(line).address == public
    subscriber = bob.start("sub", "t", "--count", "1", "--join", line)
    subscriber.line(2)
    _, out, _ = bob.run("status", "--json")
    assert [each["address"] for each in msgspec.json.decode(out)["neighbours"]] == [public]
    _, fresh, _ = alice.run("node", "--invite")
    assert carol.run("pub", "t", "from carol", "--join", fresh.strip())[0] == 0
    assert subscriber.end()[:2] == (0, "from carol\n")
