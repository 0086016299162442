"""The simulated disk answers in order, and loses what real ones lose."""

from quillcast.core.errors import DiskFailed
from quillcast.sim.store import DiskFaults
from quillcast.sim.world import World
from tests.sim.toy import machine, peer, toys

LOST, TORN, FLIPPED = (DiskFaults(lost=1), DiskFaults(lost=0, torn=1), DiskFaults(lost=0, torn=0, flipped=1))


def after_power_loss(faults: DiskFaults) -> bytes:
    world = toys(1)
    disk = peer(world, 0).host.disk
    disk.append("log", b"synced", "a")
    disk.sync("log", "s")
    world.run(1)
    disk.append("log", b"unsynced", "b")
    world.run(2)
    world.stop(machine(world, 0), silently=True, faults=faults)
    world.start(machine(world, 0))
    return read(world)


def read(world: World) -> bytes:
    peer(world, 0).host.disk.read("log", 0, 100, "read")
    world.run(world.now + 1)
    answer = peer(world, 0).got("disk")[-1]
    assert isinstance(answer, bytes)
    return answer


def test_orders_are_answered_one_after_another() -> None:
    world = toys(1)
    disk = peer(world, 0).host.disk
    disk.append("log", b"one", "first")
    disk.append("log", b"two", "second")
    disk.sync("log", "sync")
    disk.read("log", 2, 3, "read")
    disk.truncate("log", 1, "cut")
    disk.read("log", 0, 9, "all")
    assert peer(world, 0).seen == []
    world.run(1)
    answers = [entry[2:] for entry in peer(world, 0).seen]
    assert answers == [("first", 0), ("second", 3), ("sync", 6), ("read", b"etw"), ("cut", 1), ("all", b"o")]
    assert peer(world, 0).when("disk") == sorted(peer(world, 0).when("disk"))


def test_what_a_killed_process_wrote_stays() -> None:
    world = toys(1)
    peer(world, 0).host.disk.append("log", b"unsynced", "a")
    world.run(1)
    world.stop(machine(world, 0))
    world.start(machine(world, 0))
    assert read(world) == b"unsynced"


def test_power_loss_takes_tears_or_flips_what_was_not_synced() -> None:
    assert after_power_loss(LOST) == b"synced"
    torn = after_power_loss(TORN)
    assert torn != b"syncedunsynced"
    assert b"syncedunsynced".startswith(torn)
    assert torn.startswith(b"synced")
    flipped = after_power_loss(FLIPPED)
    assert flipped.startswith(b"synced")
    wrong = [a ^ b for a, b in zip(flipped, b"syncedunsynced", strict=True) if a != b]
    assert len(wrong) == 1
    assert wrong[0].bit_count() == 1


def test_a_full_disk_refuses_and_says_so() -> None:
    world = toys(1)
    machine(world, 0).files.capacity_bytes = 10
    peer(world, 0).host.disk.append("log", b"fits", "a")
    peer(world, 0).host.disk.append("log", b"does not fit", "b")
    world.run(1)
    first, second = peer(world, 0).got("disk")
    assert first == 0
    assert isinstance(second, DiskFailed)
    assert "full" in str(second)


def test_the_orders_of_a_dead_process_are_not_answered_to_the_next() -> None:
    world = toys(1)
    peer(world, 0).host.disk.append("log", b"x", "a")
    world.stop(machine(world, 0))
    world.start(machine(world, 0))
    world.run(1)
    assert peer(world, 0).seen == []
