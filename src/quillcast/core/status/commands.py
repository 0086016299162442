"""What single commands report: `pub`, `bench`, `node`, `credentials`, `scope` and `demo`."""

from msgspec import UNSET, UnsetType

from quillcast.core.status.base import Status


class PublishResult(Status, frozen=True, kw_only=True):
    """What `pub` published. The fields after `wait` are there once the peer is part of its network."""

    topic: str
    """The topic."""
    published: int
    """How many events."""
    wait: str | None
    """The acknowledgement that it waited for: `root`, `stable`, or none."""
    alone: bool | UnsetType = UNSET
    """Whether no other peer was heard."""
    looked_in: str | UnsetType = UNSET
    """Where it looked for peers of this machine."""
    error: str | UnsetType = UNSET
    """If others did not answer in time: the message."""
    reason: str | UnsetType = UNSET
    """Then also `not joined`, `not admitted` or `not stable`, or why events were not stable."""
    peers: tuple[str, ...] | UnsetType = UNSET
    """The ids of the peers that it waited for."""
    seconds: float
    """How long it took."""


class BenchResult(Status, frozen=True):
    """What `bench pub` measured."""

    bench: str
    """`pub`, `sub` or `latency`."""
    topic: str
    """The topic."""
    events: int
    """Published or received events."""
    bytes: int
    """Bytes of their payloads."""
    seconds: float
    """From the first to the last."""
    events_per_s: float
    """The rate, without the first event."""
    bytes_per_s: float
    """The same in bytes."""
    p50_ms: float | None
    """Half of the delays were at most this; None without samples. `pub` measures the time until acknowledgement."""
    p99_ms: float | None
    """The same for 99 of 100."""


class BenchReceived(BenchResult, frozen=True):
    """What `bench sub` measured."""

    lost: int
    """Events that it was told it lost."""


class BenchLatency(BenchReceived, frozen=True):
    """What `bench latency` measured."""

    rate_per_s: float
    """The rate that was asked for."""
    root: str | None
    """The topic's root."""


class JoinLineMade(Status, frozen=True):
    """The answer of `node --invite`."""

    join: str
    """The line for the other machine."""


class ClientLineMade(Status, frozen=True):
    """The answer of `node` for applications on other devices."""

    line: str
    """The line for `quillcast.connect`."""


class ClientsRevoked(Status, frozen=True):
    """A line for applications was revoked."""

    disconnected: int
    """How many clients this disconnected."""


class CredentialsShown(Status, frozen=True):
    """Credentials in a file."""

    file: str
    """The file."""
    principal: str
    """Whom they name."""


class ScopeEntry(Status, frozen=True):
    """How members enter a scope."""

    scope: str
    """The scope's name."""
    enter: str
    """What they give as `--scope`."""


class ScopeExported(Status, frozen=True):
    """A file with the state of a scope's manager was written."""

    scope: str
    """The scope's name."""
    file: str
    """The file."""


class PolicyChecked(Status, frozen=True):
    """A scope's policy that keeps the rules."""

    policy: str
    """The policy."""
    sha256: str
    """The hash that pins its file; empty if it is not in a file."""
    delivery: str
    """What it promises: `tree`, `redundant` or `lossy`."""
    groups: int
    """In how many groups it was checked."""
    fan_out: int
    """The most channels of one member for one origin."""
    channels: int
    """How many channels it wanted, over all groups."""
    changed: int
    """How many it opened or closed, over all changes of one member."""


class RecoveryChecked(Status, frozen=True):
    """A recovery protocol that keeps the rules."""

    protocol: str
    """The protocol."""
    domains: int
    """In how many domains it was checked."""
    messages: int
    """Messages between agents."""
    requests: int
    """Requests of members to members."""


class DemoEnded(Status, frozen=True):
    """The answer of `demo end`."""

    ended: bool
    """Always true."""
