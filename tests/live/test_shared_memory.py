"""Peers of one machine pass each other large blocks in shared memory, which stays as it is while anybody reads it."""

import asyncio
import contextlib
import errno
import fcntl
import gc
import mmap
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import Envelope, Kind
from quillcast.core.errors import Malformed
from quillcast.live.admission.authority import Authority
from quillcast.live.config import LiveConfig
from quillcast.live.transport import local_ipc, shared_memory
from quillcast.live.transport.framing import FRAME_BYTES_MAX, NUMBER_BYTES, FrameType
from quillcast.live.transport.link import Link
from quillcast.live.transport.shared_memory import (
    SHARED_BYTES_MIN,
    MemoryFile,
    Released,
    SharedMemory,
    may_open,
    open_block,
    open_bundle,
    place,
)
from quillcast.live.transport.shared_transport import SharedMemoryTransport
from tests.live import toys
from tests.live.conftest import MODEST_BYTES
from tests.live.toys import ToyPeer, bundle, member, run, toy

pytestmark = pytest.mark.live

SIZE = 100_000
NOBODY = 65534
HERE = os.getpid()


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Old kernels grant little unless told otherwise; and whatever a test exports, no descriptor is left of it."""
    monkeypatch.setattr(local_ipc, "BUFFER_BYTES", MODEST_BYTES)
    gc.collect()
    before = MemoryFile.held
    yield
    gc.collect()
    assert MemoryFile.held == before


def large(first: int = 0, blocks: int = 1, size_bytes: int = SIZE) -> Bundle:
    """A bundle of blocks of one event each, all different."""
    made = [Block.seal(b"p" * 16, first + n, [bytes([first + n]) * size_bytes], time_ns=0) for n in range(blocks)]
    return Bundle(Envelope(b"t" * 16, Kind.DOWN, first=first), tuple(made))


def file_of(where: bytes) -> bytes:
    """The part of a place that is the same in its file's next use."""
    return where[:16]


def payloads(peer: ToyPeer) -> list[bytes]:
    return [payload for _, came in peer.bundles for block in came.blocks for payload in block.payloads()]


def imported(peer: ToyPeer) -> list[bool]:
    """Of the bundles that came: do their blocks lie in shared memory?"""
    return [all(place(block.data) for block in came.blocks) for _, came in peer.bundles]


async def meet(alice: ToyPeer, bob: ToyPeer) -> Link:
    """Have a link made; alice's end of it."""
    said = len(bob.texts), len(alice.texts)
    alice.say(bob, "hello")
    await bob.until(lambda: len(bob.texts) > said[0])
    bob.say(alice, "hello")
    await alice.until(lambda: len(alice.texts) > said[1])
    return alice.links.links[bob.contact.node_id]


def transport_of(link: Link) -> SharedMemoryTransport:
    """The transport of a link between peers that share memory."""
    assert link.connection is not None
    assert isinstance(link.connection.transport, SharedMemoryTransport)
    return link.connection.transport


async def export_unread(alice: ToyPeer, bob: ToyPeer) -> Link:
    """Have alice export a block to bob, who does not read of it yet; alice's end of the link."""
    link = await meet(alice, bob)
    bob.links.links[alice.contact.node_id].connection.transport.stream.pause_reading()
    link.carry(large())
    link.flush()
    return link


def read_on(bob: ToyPeer, alice: ToyPeer) -> None:
    bob.links.links[alice.contact.node_id].connection.transport.stream.resume_reading()


def test_a_large_block_is_forwarded_without_a_copy() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob, toy() as carol:
            (await meet(alice, bob)).carry(large())
            await bob.until(lambda: len(bob.bundles) == 1)
            came = bob.bundles[0][1]
            (await meet(bob, carol)).carry(came)
            await carol.until(lambda: len(carol.bundles) == 1)
            assert payloads(bob) == payloads(carol) == [bytes(SIZE)]
            files = [os.fstat(peer.bundles[0][1].blocks[0].data.obj.descriptor).st_ino for peer in (bob, carol)]
            assert files[0] == files[1]
            assert came.blocks[0] == large().blocks[0]
            assert alice.links.counters["bytes_out"] > SIZE

    run(scenario())


def test_members_of_a_network_with_a_credential_share_memory_too() -> None:
    async def scenario() -> None:
        authority = Authority.new("toys", time.time_ns())
        async with toy(membership=member(authority)) as alice, toy(membership=member(authority)) as bob:
            (await meet(alice, bob)).carry(large())
            await bob.until(lambda: len(bob.bundles) == 1)
            assert (imported(bob), payloads(bob)) == ([True], [bytes(SIZE)])

    run(scenario())


@pytest.mark.parametrize(("size_bytes", "expected"), [(SIZE, True), (SHARED_BYTES_MIN // 2, False)])
def test_only_large_blocks_are_shared(size_bytes: int, expected: bool) -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            link = await meet(alice, bob)
            link.carry(large(0, 3, size_bytes))
            await bob.until(lambda: len(bob.bundles) == 1)
            assert imported(bob) == [expected]
            assert payloads(bob) == [bytes([n]) * size_bytes for n in range(3)]

    run(scenario())


def test_a_bundle_with_one_small_block_is_sent() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            mixed = Bundle(large().envelope, large().blocks + bundle(100, 1).blocks)
            (await meet(alice, bob)).carry(mixed)
            await bob.until(lambda: len(bob.bundles) == 1)
            assert (imported(bob), bob.bundles[0][1]) == ([False], mixed)

    run(scenario())


def test_peers_linked_by_tcp_send(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            link = await meet(alice, bob)
            assert not isinstance(link.connection.transport, SharedMemoryTransport)
            link.carry(large())
            await bob.until(lambda: len(bob.bundles) == 1)
            assert (imported(bob), payloads(bob)) == ([False], [bytes(SIZE)])

    monkeypatch.setattr(toys, "LOCAL_IPC", False)
    run(scenario())


def test_a_process_that_cannot_export_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> int:
        raise PermissionError("a container's rules")

    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            (await meet(alice, bob)).carry(large())
            await bob.until(lambda: len(bob.bundles) == 1)
            assert (imported(bob), payloads(bob)) == ([False], [bytes(SIZE)])

    monkeypatch.setattr(os, "memfd_create", forbidden)
    run(scenario())


def test_without_kernel_support_nothing_is_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryFile, "take_back", lambda self: True)
    assert SharedMemory().sample(b"content") is None


# --- memory


def test_memory_is_reused_once_no_process_has_it_open() -> None:
    pool = SharedMemory()
    first = pool.lay([b"a" * SIZE])
    assert first is not None
    where = place(first)
    found = open_block(HERE, where, SIZE)
    del first
    other = pool.lay([b"b" * SIZE])
    assert file_of(place(other)) != file_of(where), "somebody else has it open"
    assert bytes(found) == b"a" * SIZE
    held = MemoryFile.held
    del found, other
    assert MemoryFile.held == held - 1
    again = [pool.lay([b"c" * SIZE]), pool.lay([b"d" * SIZE])]
    assert file_of(where) in [file_of(place(each)) for each in again]
    assert [bytes(each[:1]) for each in again] == [b"c", b"d"]
    assert MemoryFile.held == held - 1


def test_memory_that_another_process_maps_is_not_written_to_until_it_ends() -> None:
    pool = SharedMemory()
    view = pool.lay([b"a" * SIZE])
    assert view is not None
    code = f"""
        import sys
        from quillcast.live.transport.shared_memory import open_block
        found = open_block({HERE}, {place(view)!r}, {SIZE})
        print("open", flush=True)
        sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as importer:
        assert importer.stdout is not None
        assert importer.stdout.readline() == b"open\n"
        memory = view.obj
        assert not memory.take_back()
        importer.kill()
    assert memory.take_back()


def test_what_is_larger_than_any_batch_gets_memory_of_its_own() -> None:
    pool = SharedMemory()
    view = pool.lay([bytes(1 << 20), b"end"])
    assert view is not None
    assert bytes(view[-4:]) == b"\0end"
    assert (len(view), len(view.obj)) == ((1 << 20) + 3, (1 << 20) + 11)
    held = MemoryFile.held
    del view
    assert MemoryFile.held == held - 1


def test_a_block_of_many_events_is_exported_whole() -> None:
    values = [b"%06d" % n for n in range(20_000)]
    view = SharedMemory().lay(values)
    assert view is not None
    assert bytes(view) == b"".join(values)


def test_a_node_exports_from_a_bounded_number_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "_MEMORIES_MAX", 3)
    pool = SharedMemory()
    kept = [pool.lay([bytes(SIZE)]) for _ in range(5)]
    assert [each is None for each in kept] == [False, False, False, True, True]
    del kept
    assert pool.lay([bytes(SIZE)]) is not None


def test_without_free_descriptors_bundles_are_copied_and_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            link = await meet(alice, bob)
            most = MemoryFile.held + 3  # two at bob's end for one at alice's
            monkeypatch.setattr(shared_memory, "held_max", lambda: most)
            for first in range(4):
                link.carry(large(first))
            await bob.until(lambda: len(bob.bundles) == 4)
            assert payloads(bob) == [bytes([n]) * SIZE for n in range(4)]
            assert not all(imported(bob))

    run(scenario())


def test_a_reference_to_reused_memory_is_invalid() -> None:
    pool = SharedMemory()
    first = place(pool.lay([b"a" * SIZE]))
    second = place(pool.lay([b"b" * SIZE]))
    assert (file_of(first), first != second) == (file_of(second), True)
    with pytest.raises(Released):
        open_block(HERE, first, SIZE)
    assert open_block(HERE, second, SIZE) == b"b" * SIZE


def test_an_exporter_survives_an_importer_that_opens_its_memory_too_late() -> None:
    """The kernel tells the holder of a lease that somebody wants to open the file, by a signal."""
    code = """
        import sys
        from quillcast.live.transport.shared_memory import MemoryFile
        memory = MemoryFile.new(100)
        print(memory.place.hex(), flush=True)
        taken = 0
        while taken < 20_000:
            taken += memory.take_back()
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE) as pool:
        assert pool.stdout is not None
        where = bytes.fromhex(pool.stdout.readline().decode())
        opened = 0
        while pool.poll() is None:
            with contextlib.suppress(Released):
                open_block(pool.pid, where[:16] + bytes(8), 100)
            opened += 1
    assert (pool.returncode, opened > 0) == (0, True)


def test_a_fork_ends_the_use_of_what_its_child_may_look_at() -> None:
    pool = SharedMemory()
    before = file_of(place(pool.lay([bytes(SIZE)])))
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert file_of(place(pool.lay([bytes(SIZE)]))) != before


def test_memory_that_cannot_be_mapped_is_not_held() -> None:
    held = MemoryFile.held
    with pytest.raises(OSError, match="Bad file descriptor"):
        MemoryFile(1 << 20, 0, SIZE)
    gc.collect()
    assert MemoryFile.held == held


def test_a_peer_that_confirms_nothing_gets_two_windows_by_shared_memory_and_the_rest_by_its_socket() -> None:
    config = LiveConfig(window_bytes=3 * SIZE)

    async def scenario() -> None:
        async with toy(config=config) as alice, toy(config=config) as bob:
            link = await meet(alice, bob)
            theirs = transport_of(bob.links.links[alice.contact.node_id])
            for first in range(10):
                link.carry(large(first))
                await bob.until(lambda count=first + 1: len(bob.bundles) == count)
                theirs.opened = 0
                bob.links.release(alice.contact.node_id, bob.bundles[-1][1].size)
            assert imported(bob) == [True] * 6 + [False] * 4
            assert payloads(bob) == [bytes([n]) * SIZE for n in range(10)]

    run(scenario())


def test_a_peer_of_another_user_is_linked_and_sent_to(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
            link = await meet(alice, bob)
            monkeypatch.undo()
            assert not isinstance(link.connection.transport, SharedMemoryTransport)
            link.carry(large())
            await bob.until(lambda: len(bob.bundles) == 1)
            assert (imported(bob), payloads(bob)) == ([False], [bytes(SIZE)])

    run(scenario())


def test_a_peer_without_descriptors_loses_the_link_once_and_imports_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def scarce(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            link = await meet(alice, bob)
            with monkeypatch.context() as patch:
                link.carry(large())
                link.flush()
                patch.setattr(os, "open", scarce)
                await bob.until(lambda: bob.losses == [alice.contact.node_id])
            assert bob.links.counters["refused_malformed"] == 0
            assert "Too many open files" in bob.links.problems[-1]
            await alice.until(lambda: alice.losses == [bob.contact.node_id])
            (await meet(alice, bob)).carry(large())
            await bob.until(lambda: len(bob.bundles) == 1)
            assert (imported(bob), payloads(bob)) == ([False], [bytes(SIZE)])

    run(scenario())


# --- what ends


def test_what_crosses_the_end_of_a_link_comes() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            link = await meet(alice, bob)
            alice.links.disconnect(bob.contact.node_id)
            theirs = bob.links.links[alice.contact.node_id]
            alice.links.measure(bob.contact)
            await alice.until(lambda: alice.measures)
            assert theirs.idle_there
            bob.links.disconnect(alice.contact.node_id)
            bob.links.write(theirs)
            assert alice.contact.node_id not in bob.links.links, "bob has said that he is done"
            link.carry(large())
            link.flush()
            alice.links.shared_memory.retire()
            del link
            gc.collect()
            await bob.until(lambda: len(bob.bundles) == 1)
            assert payloads(bob) == [bytes(SIZE)]

    run(scenario())


def test_a_peer_that_closes_waits_for_links_that_are_ending_too() -> None:
    async def scenario() -> None:
        async with toy() as bob:
            async with toy() as alice:
                link = await meet(alice, bob)
                link.carry(large())
                link.flush()
                alice.links.end(link)
                alice.links.shared_memory.retire()
                del link
            assert payloads(bob) == [bytes(SIZE)]

    run(scenario())


def test_a_block_is_exported_until_it_is_confirmed() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            await meet(alice, bob)
            held = MemoryFile.held
            await export_unread(alice, bob)
            alice.links.shared_memory.retire()  # nobody but the link holds the block now
            gc.collect()
            assert MemoryFile.held == held + 1
            read_on(bob, alice)
            await bob.until(lambda: len(bob.bundles) == 1)
            assert payloads(bob) == [bytes(SIZE)]
            bob.bundles.clear()
            await meet(alice, bob)
            assert MemoryFile.held == held, "bob said that he has it, along with his message"

    run(scenario())


def test_a_peer_that_closes_waits_until_its_blocks_are_confirmed() -> None:
    async def scenario() -> None:
        async with toy() as bob:
            async with toy() as alice:
                link = await meet(alice, bob)
                for first in range(5):
                    link.carry(large(first))
            assert payloads(bob) == [bytes([n]) * SIZE for n in range(5)]

    run(scenario())


def test_an_exporter_that_is_gone_is_a_lost_link_and_no_broken_promise() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            link = await export_unread(alice, bob)
            transport_of(link)._exported.clear()
            alice.links.shared_memory.retire()
            gc.collect()
            read_on(bob, alice)
            await bob.until(lambda: bob.losses == [alice.contact.node_id])
            assert bob.bundles == []
            assert bob.links.counters["refused_malformed"] == 0
            line = f"lost the link with process {HERE} of this machine: process {HERE} no longer exports this block"
            assert list(bob.links.problems) == [line]

    run(scenario())


def test_a_link_that_breaks_releases_what_it_exported() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            link = await export_unread(alice, bob)
            where = alice.links.shared_memory._all[0].place
            assert file_of(place(alice.links.shared_memory.lay([bytes(SIZE)]))) != file_of(where)
            link.connection.abort()
            await alice.until(lambda: alice.losses == [bob.contact.node_id])
            del link
            gc.collect()
            again = [place(alice.links.shared_memory.lay([b"\1" * SIZE])) for _ in range(2)]
            assert file_of(where) in map(file_of, again)
            assert where not in again
            read_on(bob, alice)
            await bob.until(lambda: bob.losses == [alice.contact.node_id])
            assert bob.bundles == [], "what was said before leads to nothing now"

    run(scenario())


# --- bad input


def frames(link: Link, type_: FrameType, content: bytes) -> None:
    link.say(type_, content)
    link.flush()


async def is_cut_off(bob: ToyPeer, alice: ToyPeer, words: str) -> None:
    await bob.until(lambda: bob.losses == [alice.contact.node_id])
    assert bob.links.counters["refused_malformed"] == 1
    assert words in bob.links.problems[-1]


def place_of(descriptor: int) -> bytes:
    return shared_memory._PLACE.pack(descriptor, os.fstat(descriptor).st_ino, 0)


@pytest.mark.parametrize("what", ["a file", "a pipe", "what can shrink", "too short", "a part"])
def test_a_peer_whose_exported_bundle_differs_from_its_header_is_cut_off(what: str, tmp_path) -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            link = await meet(alice, bob)
            said, size, opened = large(), SIZE, []
            match what:
                case "a file":
                    (tmp_path / "file").write_bytes(bytes(2 * SIZE))
                    opened = [os.open(tmp_path / "file", os.O_RDWR)]
                case "a pipe":
                    opened = list(os.pipe())
                case "what can shrink":
                    opened = [os.memfd_create("test", os.MFD_ALLOW_SEALING)]
                    os.ftruncate(opened[0], 2 * SIZE)
                    fcntl.fcntl(opened[0], fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
                case "too short":
                    size = 100
            memory = MemoryFile.new(size)
            where = place_of(opened[0]) if opened else memory.place
            if what == "a part":
                where = where[:12]
            frames(link, FrameType.SHARED_BUNDLE, said.head + where)
            await is_cut_off(bob, alice, "exports")
            for descriptor in opened:
                os.close(descriptor)

    run(scenario())


@pytest.mark.parametrize("by_local_ipc", [True, False])
def test_a_peer_that_confirms_too_much_or_exports_unasked_is_cut_off(
    by_local_ipc: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            link = await meet(alice, bob)
            if by_local_ipc:
                frames(link, FrameType.OPENED, (1).to_bytes(NUMBER_BYTES, "little"))
                await is_cut_off(bob, alice, "1 bundles were confirmed, but only 0 are exported")
            else:
                frames(link, FrameType.SHARED_BUNDLE, large().head + MemoryFile.new(SIZE).place)
                await is_cut_off(bob, alice, "a SHARED_BUNDLE frame of")
                await alice.until(lambda: alice.losses == [bob.contact.node_id])
                (await meet(alice, bob)).say(FrameType.SHARED_MEMORY)
                await bob.until(lambda: len(bob.losses) == 2)
                assert "a SHARED_MEMORY frame of 0 bytes came out of turn" in bob.links.problems[-1]

    monkeypatch.setattr(toys, "LOCAL_IPC", by_local_ipc)
    run(scenario())


def test_memory_that_cannot_be_opened_is_not_imported() -> None:
    memory = MemoryFile.new(SIZE)
    memory.fill([b"incarnation"])
    assert may_open(HERE, memory.place, b"incarnation")
    assert not may_open(HERE, memory.place, b"another one")
    assert not may_open(HERE, b"", b"")
    where = memory.place
    del memory
    assert not may_open(HERE, where, b"incarnation")
    with pytest.raises(Released):
        open_block(HERE, where, SIZE)
    assert not may_open(HERE, where, b"")
    small = MemoryFile.new(1)
    with pytest.raises(Released):
        open_block(HERE, small.place[:8] + where[8:], SIZE)  # the number is another file's by now
    with pytest.raises(Malformed, match="exports 1 blocks, and 0 bytes name their places"):
        open_bundle(large().head, HERE)


@pytest.mark.parametrize("size", [0, FRAME_BYTES_MAX + 1])
def test_a_size_that_no_block_has_is_malformed(size: int) -> None:
    head = bytearray(large().head)
    at = head.rindex(large().blocks[0].size.to_bytes(4, "little"))
    head[at : at + 4] = size.to_bytes(4, "little")
    with pytest.raises(Malformed, match=f"exports blocks of {size} bytes"):
        open_bundle(bytes(head) + MemoryFile.new(SIZE).place, HERE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user for a moment")
def test_another_user_cannot_open_exported_memory() -> None:
    memory = MemoryFile.new(SIZE)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert may_open(HERE, memory.place, bytes(SIZE))
        os.seteuid(NOBODY)
        try:
            with pytest.raises(Malformed, match="cannot be opened: Permission denied"):
                open_block(other.pid, shared_memory._PLACE.pack(0, 0, 0), 1)
        finally:
            os.seteuid(0)
            other.communicate(b"\n")


def test_an_exported_file_keeps_its_size() -> None:
    memory = MemoryFile.new(SIZE)
    for size in (SIZE - 1, SIZE + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.descriptor, size)
    with mmap.mmap(memory.descriptor, 0, prot=mmap.PROT_READ) as mapped:
        assert len(mapped) == SIZE + 8


def test_a_process_that_ends_after_closing_loses_nothing() -> None:
    """Bytes in a socket outlive their sender, and its shared memory does not: closing waits until it is opened."""
    code = """
        import asyncio, os, sys
        from quillcast.core.messages import Contact
        from tests.live import toys
        from tests.live.test_shared_memory import large, transport_of

        async def main():
            async with toys.toy() as alice:
                link = alice.links.link(Contact(bytes.fromhex(sys.argv[1]), sys.argv[2]))
                alice.links.measure(link.contact)
                await alice.until(lambda: alice.measures)
                assert transport_of(link).exports
                for first in range(8):
                    link.carry(large(first))
            os._exit(0)

        toys.run(main())
    """

    async def scenario() -> None:
        async with toy() as bob:
            pool = await asyncio.create_subprocess_exec(
                sys.executable, "-c", textwrap.dedent(code), bob.contact.node_id.hex(), bob.contact.address
            )
            assert await pool.wait() == 0
            await bob.until(lambda: len(bob.losses) == 1)
            assert payloads(bob) == [bytes([n]) * SIZE for n in range(8)]
            assert any(imported(bob))

    run(scenario())
