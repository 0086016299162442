"""Changes of policies in two phases: at the manager, step by step."""

from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policies.ring import Ring
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.scopes.swaps import DRAIN_S, Phase, Swaps
from tests.protocol.scopes.network import LEASE_S, Network, peer, scope, topic

T = topic("t")


class Site:
    """Four members of a scope, and a policy that can be set."""

    def __init__(self, policy: ScopePolicy) -> None:
        self.policy = policy
        self.network = Network()
        self.manager = self.network.add_scope("X", policy=lambda name: self.policy)
        for name in "ABCD":
            self.network.add_peer(name, ["X"])
            self.network.role(name, T, "X", publishes=name == "A", subscribes=True)
            self.network.settle()

    def change(self, policy: ScopePolicy) -> None:
        self.policy = policy
        self.network.carry_out(scope("X").id, self.manager.policies_changed())

    def restart_manager(self) -> None:
        self.network.crash_manager("X")
        self.manager = self.network.restore_manager("X")
        self.network.settle()

    def join(self, name: str) -> None:
        self.network.add_peer(name, ["X"])
        self.network.role(name, T, "X", subscribes=True)
        self.network.settle()

    def leave(self, name: str) -> None:
        """End a subscription."""
        self.network.role(name, T, "X")
        self.network.settle()

    def constraints(self, name: str) -> set[tuple[int, bool]]:
        """Version of each channel that a member keeps, and whether bundles begin on it."""
        channels = self.network.installed[peer(name).id]
        return {(each.version, each.begins) for channel in channels for each in channel.constraints}

    def received(self) -> dict[str, int]:
        return dict(self.network.publish("A", T))

    def phase(self) -> Phase | None:
        swap = self.manager.swaps.running.get(T)
        return swap.phase if swap is not None else None


def test_old_channels_carry_bundles_until_all_members_have_the_new_ones() -> None:
    site = Site(KAry())
    site.network.cut.add(peer("D").id)
    site.change(Chain())
    site.network.settle()
    assert site.phase() is Phase.INSTALLING
    assert site.constraints("A") == {(0, True), (1, False)}
    assert site.manager.swaps.story(T) == ("changing the policy: new channels are being installed, waiting for D")
    assert site.received() == dict.fromkeys("BCD", 1)


def test_then_bundles_begin_on_the_new_ones_and_the_old_ones_drain() -> None:
    site = Site(KAry())
    site.change(Chain())
    site.network.settle()
    assert site.phase() is Phase.DRAINING
    assert site.constraints("A") == {(0, False), (1, True)}
    assert site.received() == dict.fromkeys("BCD", 1)
    site.network.passed(LEASE_S)
    assert site.phase() is None
    assert site.constraints("A") == {(1, True)}
    assert site.received() == dict.fromkeys("BCD", 1)


def test_a_member_that_is_silent_ends_the_change_with_its_name() -> None:
    site = Site(KAry())
    site.network.cut.add(peer("D").id)
    site.change(Mesh())
    site.network.passed(2 * LEASE_S)
    assert site.manager.swaps.story(T) == "the policy stays as it was: D fell silent"
    assert site.constraints("A") == {(0, True)}
    site.change(Mesh())
    site.network.settle()
    assert site.phase() is Phase.DRAINING, "it may be set again"


def test_a_member_that_leaves_in_good_order_ends_nothing() -> None:
    site = Site(KAry())
    site.network.cut.add(peer("D").id)
    site.change(Mesh())
    site.network.settle()
    site.network.cut.clear()
    site.network.leave("D")
    site.network.settle()
    assert site.phase() is Phase.DRAINING


def test_a_change_that_is_taken_back_before_it_was_switched_to_is_over() -> None:
    site = Site(KAry())
    site.network.cut.add(peer("D").id)
    site.change(Mesh())
    site.change(KAry())
    site.network.settle()
    assert site.phase() is None
    assert site.constraints("A") == {(0, True)}


def test_changes_follow_one_after_the_other() -> None:
    site = Site(KAry())
    site.change(Mesh())
    site.network.settle()
    site.change(Ring())
    site.network.settle()
    assert site.phase() is Phase.DRAINING
    assert site.constraints("A") == {(0, False), (1, True)}, "the mesh has just begun"
    site.network.passed(4 * LEASE_S)
    assert site.constraints("A") == {(2, True)}
    assert site.received().keys() == {*"BCD"}


def test_a_manager_that_comes_back_while_channels_are_installed_finishes_that() -> None:
    site = Site(KAry())
    site.network.cut.add(peer("D").id)
    site.change(Chain())
    site.network.settle()
    site.restart_manager()
    assert site.phase() is Phase.INSTALLING
    assert site.constraints("A") == {(0, True), (1, False)}
    assert site.received() == dict.fromkeys("BCD", 1)
    site.network.cut.clear()
    site.network.passed(4 * LEASE_S)
    assert site.phase() is None
    assert site.constraints("A") == {(1, True)}
    assert site.received() == dict.fromkeys("BCD", 1)


def test_or_ends_it_where_a_member_is_silent() -> None:
    site = Site(KAry())
    site.network.cut.add(peer("D").id)
    site.change(Chain())
    site.network.settle()
    site.restart_manager()
    site.network.passed(2 * LEASE_S)
    assert site.manager.swaps.story(T) == "the policy stays as it was: D fell silent"
    assert site.constraints("A") == {(0, True)}
    site.network.cut.clear()
    assert site.received() == dict.fromkeys("BC", 1)


def test_a_manager_that_comes_back_while_old_channels_drain_lets_them_drain() -> None:
    site = Site(KAry())
    site.change(Chain())
    site.network.settle()
    assert site.phase() is Phase.DRAINING
    site.restart_manager()
    assert site.phase() is Phase.DRAINING
    assert site.constraints("A") == {(0, False), (1, True)}
    site.network.passed(LEASE_S)
    assert site.phase() is None
    assert site.constraints("A") == {(1, True)}


def test_a_manager_that_comes_back_with_another_policy_changes_in_two_phases() -> None:
    site = Site(KAry())
    site.network.cut.add(peer("D").id)
    site.policy = Chain()
    site.restart_manager()
    assert site.constraints("A") == {(0, True), (1, False)}
    site.network.cut.clear()
    site.network.passed(4 * LEASE_S)
    assert site.constraints("A") == {(1, True)}
    site.restart_manager()
    assert site.phase() is None
    assert site.constraints("A") == {(1, True)}, "the same policy as before is no change"


def swaps(**names: int) -> Swaps:
    """A change from one policy to another, at these members, that has been told of."""
    made = Swaps(LEASE_S, lambda topic: 0, lambda label: dict(map(reversed, names.items()))[label])
    made.want(T, Chain(), 0.0)
    made.want(T, Mesh(), 0.0)
    made.told(T, dict.fromkeys(names.values(), 7))
    return made


def test_an_acknowledgement_of_earlier_orders_is_none() -> None:
    made = swaps(A=1)
    made.heard(1, 6, 0.0, behind=False)
    assert list(made.passed(0.1)) == []
    made.heard(1, 7, 0.1, behind=True)
    ((of, begun),) = made.passed(0.2)
    assert (of, begun.version, made.in_force[T]) == (T, 1, Mesh())


def drained(made: Swaps) -> Swaps:
    made.heard(1, 7, 0.0, behind=True)
    list(made.passed(0.0))
    made.told(T, {1: 8})
    made.heard(1, 8, 0.0, behind=True)
    list(made.passed(0.0))
    assert made.running[T].phase is Phase.DRAINING
    return made


def test_old_channels_stay_while_a_member_misses_something() -> None:
    made = drained(swaps(A=1))
    made.heard(1, 8, LEASE_S / 4, behind=False)
    assert list(made.passed(LEASE_S)) == [], "it may not have known then what was sent last"
    made.heard(1, 8, LEASE_S, behind=True)
    assert list(made.passed(LEASE_S)) == []
    made.heard(1, 8, LEASE_S, behind=False)
    assert list(made.passed(LEASE_S)) == [(T, None)]


def test_old_channels_go_after_half_a_minute_all_the_same() -> None:
    made = drained(swaps(A=1))
    assert list(made.passed(DRAIN_S - 1)) == []
    assert list(made.passed(DRAIN_S)) == [(T, None)]


def test_old_channels_do_not_wait_for_a_member_that_is_gone() -> None:
    made = swaps(A=1, B=2)
    for label in (1, 2):
        made.heard(label, 7, 0.0, behind=True)
    list(made.passed(0.0))
    made.told(T, {1: 8, 2: 8})
    assert made.gone(2, "") == []
    made.heard(1, 8, 0.0, behind=True)
    list(made.passed(0.0))
    made.heard(1, 8, LEASE_S, behind=False)
    assert list(made.passed(LEASE_S)) == [(T, None)]


def test_a_member_that_lives_and_does_not_acknowledge_ends_the_change_after_a_lease() -> None:
    made = swaps(A=1, B=2)
    made.heard(1, 7, 0.0, behind=False)
    assert list(made.passed(LEASE_S + 0.1)) == [(T, None)]
    assert made.story(T) == "the policy stays as it was: B did not acknowledge the new channels"
    made.want(T, Mesh(), LEASE_S + 0.2)
    assert made.running == {}, "it is not tried again by itself"


def test_a_member_that_joins_in_between_changes_channels_in_two_phases() -> None:
    site = Site(Ring())
    site.network.passed(4 * LEASE_S)
    before = site.manager.state.topics[T].version
    site.network.cut.add(peer("B").id)
    site.join("E")
    assert site.phase() is Phase.INSTALLING
    assert site.constraints("A") == {(before, True), (before + 1, False)}
    assert site.manager.swaps.story(T) == "changing channels: new channels are being installed, waiting for B"
    assert site.received().keys() == {*"BCDE"}
    site.network.cut.clear()
    site.network.passed(3 * LEASE_S)
    assert site.phase() is None
    assert site.constraints("A") == {(before + 1, True)}


def test_members_that_come_and_go_meanwhile_are_one_change() -> None:
    site = Site(Ring())
    site.network.passed(4 * LEASE_S)
    before = site.manager.state.topics[T].version
    for name in "EFGH":
        site.join(name)
        assert site.received().keys() >= {*"BCD", name}
    assert site.phase() is Phase.DRAINING
    site.leave("D")
    site.network.passed(6 * LEASE_S)
    assert site.phase() is None
    assert site.manager.state.topics[T].version == before + 2, "E came, and then the others"
    assert site.received().keys() == {*"BCEFGH"}


def test_a_silent_member_does_not_keep_others_out() -> None:
    site = Site(Ring())
    site.network.passed(4 * LEASE_S)
    site.network.cut.add(peer("B").id)
    site.join("E")
    site.network.passed(2 * LEASE_S)
    assert site.phase() is not Phase.INSTALLING
    site.network.passed(3 * LEASE_S)
    assert site.phase() is None
    assert site.received().keys() == {*"CDE"}


def test_a_member_that_lives_and_does_not_acknowledge_holds_members_up_for_a_lease() -> None:
    made = Swaps(LEASE_S, lambda topic: 0, str)
    made.want(T, Chain(), 0.0)
    assert made.renew(T, (), 0.0)
    made.told(T, {1: 7, 2: 7})
    made.heard(1, 7, 0.0, behind=False)
    assert list(made.passed(LEASE_S)) == []
    ((of, begun),) = made.passed(LEASE_S + 0.1)
    assert (of, begun.version, made.in_force[T]) == (T, 1, Chain())


def test_a_change_of_members_gives_way_to_one_of_the_policy() -> None:
    site = Site(Ring())
    site.network.passed(4 * LEASE_S)
    site.network.cut.add(peer("B").id)
    site.join("E")
    site.change(Mesh())
    assert site.manager.swaps.story(T).startswith("changing the policy: ")
    site.network.cut.clear()
    site.network.passed(4 * LEASE_S)
    assert site.manager.swaps.in_force[T] == Mesh()
    assert site.received().keys() == {*"BCDE"}


def test_one_who_leaves_a_topic_forwards_until_others_do() -> None:
    site = Site(KAry())
    site.change(Chain())
    site.network.passed(4 * LEASE_S)
    site.network.cut.add(peer("D").id)
    site.leave("B")
    assert site.phase() is Phase.INSTALLING
    assert site.received().keys() == {*"BCD"}
    site.network.cut.clear()
    site.network.passed(4 * LEASE_S)
    assert site.received() == dict.fromkeys("CD", 1)
    assert site.constraints("B") == set()


def test_one_who_forwards_until_others_do_and_then_leaves_the_scope_is_forgotten_at_once() -> None:
    site = Site(KAry())
    site.join("E")
    site.change(Chain())
    site.network.passed(8 * LEASE_S)
    site.network.cut.add(peer("C").id)
    site.leave("D")
    label = site.manager.members.labels[peer("D").id]
    assert label in site.manager.orders.labels[T], "C does not know yet that it is to forward to E"
    site.network.leave("D")
    site.network.settle()
    assert not any(label in channel[:2] for channel in site.manager.state.topics[T].channels)
    site.manager.check()


def test_a_manager_that_comes_back_while_members_change_goes_on_with_that() -> None:
    site = Site(Ring())
    site.network.passed(4 * LEASE_S)
    site.network.cut.add(peer("B").id)
    site.join("E")
    site.restart_manager()
    assert site.phase() is Phase.INSTALLING
    assert site.received().keys() >= {*"CDE"}
    site.network.cut.clear()
    site.network.passed(4 * LEASE_S)
    assert site.phase() is None
    assert site.received().keys() == {*"BCDE"}


def test_a_manager_that_comes_back_while_old_channels_of_members_drain_says_that() -> None:
    site = Site(Ring())
    site.network.passed(4 * LEASE_S)
    site.join("E")
    site.restart_manager()
    assert site.manager.swaps.story(T).startswith("changing channels: old channels are draining")
