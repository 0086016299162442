"""The virtual clock lets things happen in order."""

from random import Random

from quillcast.sim.clock import Clock


def test_things_happen_in_order_of_time_and_then_of_asking() -> None:
    clock, happened = Clock(), []
    times = [0.5, 0.001, 30.0, 0.001, 0.0109, 0.010, 0.0, 30.0]
    for number, at in enumerate(times):
        clock.at(at, happened.append, (at, number))
    clock.run(100)
    assert happened == sorted(happened)
    assert len(happened) == len(times)
    assert clock.now == 100


def test_what_is_asked_for_while_things_happen_takes_its_place_among_them() -> None:
    random = Random(7)
    clock = Clock()
    happened: list[tuple[float, float]] = []

    def ask(at: float) -> None:
        happened.append((at, clock.now))
        if len(happened) < 2000:
            for delay_s in (random.choice([0.0, 0.0005, 0.009, 0.02, 3.0]), 0.004):
                clock.at(clock.now + delay_s, ask, clock.now + delay_s)

    clock.at(0.0, ask, 0.0)
    clock.run(2.0)
    asked = [at for at, _ in happened]
    assert asked == sorted(asked)
    assert all(at == now for at, now in happened)


def test_a_run_stops_at_its_time_and_continues_from_there() -> None:
    clock, happened = Clock(), []
    for at in (0.001, 0.002, 0.003, 5.0):
        clock.at(at, happened.append, at)
    clock.run(0.002)
    assert (happened, clock.now) == ([0.001, 0.002], 0.002)
    clock.after(0.0005, happened.append, 0.0025)
    clock.run(4.0)
    assert (happened, clock.now) == ([0.001, 0.002, 0.0025, 0.003], 4.0)


def test_what_was_due_in_the_past_happens_now() -> None:
    clock, happened = Clock(), []
    clock.run(2.0)
    clock.at(1.0, happened.append, "late")
    clock.run(2.0)
    assert (happened, clock.now) == (["late"], 2.0)
