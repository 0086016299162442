"""How a running node without a credential becomes a member of its network when other peers of this machine are members.

The node has two peers for a while: it joins the members, subscribes there, moves its publishers, and leaves the former
network when the events that it published there are safe. `live.admission.adoption` explains the three steps.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from quillcast.core.errors import LocalError, QuillcastError, Unreachable
from quillcast.live.admission.adoption import ASK_S, Adoption, bring_over, unheard
from quillcast.live.edges.publishers import Publishers
from quillcast.live.edges.subscription import Inbox
from quillcast.live.node.presence import Presence, Presences, Setting
from quillcast.live.node.startup import Startup

_WATCH_S = 2.0  # between searches for members that other users run; a guess
_DRAIN_S = 0.05  # how long a subscription may wait for room in a network that the node is leaving; a guess
_SAFE_S = 10.0  # ... and how much longer than a lease its events may take to become stable there; a guess

Run = Callable[[Coroutine[Any, Any, None]], None]


class Migration:
    """Moves a node from the network without a credential to the members' network. `run` starts tasks of the node."""

    def __init__(
        self, presences: Presences, setting: Setting, startup: Startup, publishers: Publishers, run: Run
    ) -> None:
        self._presences, self._setting, self._startup, self._publishers = presences, setting, startup, publishers
        self._run = run
        self._adoption = Adoption(
            {"join": self._join_members, "publish": self._publish_to_members, "leave": self._leave_former}, run
        )
        self._stopped = False

    def stop(self) -> None:
        """The node leaves all its networks itself; stop."""
        self._stopped = True

    def settle_in(self) -> None:
        """The node is part of a network now: remember that. Without a credential, watch for members."""
        presence, registry = self._presences.current, self._startup.registry
        presence.keep_contacts()
        if presence.memory is not None:
            self._run(presence.memory.keep_regularly())
        if presence.membership is None and registry.is_shared and not self._startup.given:
            self._run(self._watch_for_members())

    async def bring_others_over(self) -> None:
        """Ask this user's other peers here without the credential to adopt it; note which do not."""
        links, registry = self._presences.current.links, self._startup.registry
        if links.handshake.tls is None:
            return
        credential = links.handshake.tls.fingerprint
        others = [other for other in registry.all_entries() if other.credential != credential]
        own = [other for other in others if other.is_own and not other.credential]
        for line in await bring_over(registry, own, credential):
            self._presences.note(line)
        for other in others:
            if other not in own:
                with contextlib.suppress(Unreachable):
                    await links.greet(other.address)  # this peer is told why that fails
                self._presences.note(unheard(other, self._setting.network))

    async def take(self, step: str, credential: str, pid: int) -> None:
        """Take a step of adopting the credential, as a member's process asks. Raises the reason if it fails."""
        presences = self._presences
        try:
            if presences.current.membership is None and self._startup.resolver.adoptable != credential:
                raise LocalError("this user was not admitted to it")
            await self._adoption.take(step)
        except QuillcastError as problem:
            if presences.current.membership is None:
                self._cut_off(pid, str(problem))
            raise

    async def _watch_for_members(self) -> None:
        """Watch for members that other users run: this peer cannot adopt the credential then."""
        while self._presences.current.membership is None:
            entries = self._startup.registry.all_entries()
            members = [other for other in entries if other.credential and not other.is_own]
            if members:
                self._cut_off(members[0].pid, f"user {members[0].user} runs it, and this user was not admitted")
                return
            await asyncio.sleep(_WATCH_S)

    async def _join_members(self) -> None:
        """Become a member, and subscribe among the members to all topics of this node's subscriptions."""
        former = self._presences.current
        if former.membership is not None:
            return
        if former.peer.runs_managers():
            raise LocalError("it runs the managers of scopes; start it again as a member of the network")
        presence = await self._become_member()
        for descriptor in former.peer.descriptors():
            if descriptor.version > 0:
                presence.pump.call(presence.peer.learn, descriptor)
        self._publishers.hold()
        self._presences.replace(presence)
        inboxes = [inbox for inbox in former.peer.subscribers() if isinstance(inbox, Inbox)]
        subscriptions = [inbox.subscription for inbox in inboxes if inbox.subscription is not None]
        for subscription in subscriptions:
            subscription.move(presence.warrant(subscription.topic, subscription.credentials))
        for subscription in subscriptions:
            with contextlib.suppress(QuillcastError):  # its reader is told why it failed
                await subscription.started()
        self._run(self._drain(former))
        self.settle_in()
        network, address = self._setting.network, presence.contact.address
        line = f"this peer has adopted the credential of network {network!r}, and is now at {address}"
        self._presences.tell(line)
        if self._setting.on_problem is not None:
            presence.pump.loop.call_soon(self._setting.on_problem, line)

    async def _become_member(self) -> Presence:
        """Open a second peer of this node, in the members' network."""
        timeout_s = self._setting.live.join_timeout_s
        membership = await self._startup.resolver.find(timeout_s)
        presence = await self._startup.present(None, membership)
        try:
            contacts = await presence.find((), may_be_first=False)
            presence.take_part(contacts)
            await presence.entered(timeout_s)
        except BaseException:
            await presence.close()
            raise
        return presence

    async def _drain(self, former: Presence) -> None:
        """Tell the former peer where readers made room and which subscriptions were closed."""
        while self._presences.former is former:
            await asyncio.sleep(_DRAIN_S)
            for handle in former.peer.subscriptions_here():
                inbox = handle.subscriber
                if isinstance(inbox, Inbox):
                    former.pump.call(former.peer.unsubscribe if inbox.closed else former.peer.drained, handle)

    async def _publish_to_members(self) -> None:
        """Publish among the members from now on, once all earlier events are safe in the former network."""
        former = self._presences.former
        if former is not None:
            await self._publishers.move(former, ASK_S / 2)

    async def _leave_former(self) -> None:
        """Leave the network without the credential, once events published there are safe or had a lease's time."""
        former = self._presences.former
        if former is None:
            return
        await self._publishers.moved_are_safe(former, self._setting.config.topics.lease_s + _SAFE_S)
        if self._stopped:
            return
        await former.leave()
        self._publishers.end_moved()
        self._presences.leave_former()
        await former.close()

    def _cut_off(self, pid: int, why: str) -> None:
        """Process `pid` is a member of this network and this node cannot become one: fail every call with that."""
        error = LocalError(
            f"process {pid} of this machine has the credential of network {self._setting.network!r}, and this peer "
            f"cannot reach it: {why}; start it again with --join and the line that `quillcast node --invite` prints, "
            "or with another --network"
        )
        self._presences.note(str(error))
        for inbox in list(self._presences.current.peer.subscribers()):
            inbox.failed(error)
        self._publishers.failed(error)
