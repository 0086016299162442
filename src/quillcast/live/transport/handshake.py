"""One peer's part in handshakes: its hello, admission, and the check of certificates."""

import time
from collections import Counter
from collections.abc import Callable

from quillcast.core.errors import DiskFailed
from quillcast.live.runtime.problems import Problems
from quillcast.live.transport import certificates, hello
from quillcast.live.transport.hello import Hello, Identity
from quillcast.live.transport.tls import Tls
from quillcast.protocol.security.members import Unadmitted, check_claim, check_clocks, check_lifetime


class Handshake:
    """One peer's side of every handshake.

    With `tls`, every link is encrypted, and only members of the network get one. `wall_ns` is the clock for checking
    certificates, nanoseconds since 1970 UTC.
    """

    def __init__(
        self, identity: Identity, network: str, incarnation: bytes, counters: Counter[str], problems: Problems,
        *, tls: Tls | None = None, wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        self.identity, self.network, self.incarnation = identity, network, incarnation
        self.tls, self.wall_ns = tls, wall_ns
        self._counters, self._problems = counters, problems
        self.answer_application: Callable[[Hello, bytes], bytes] | None = None
        """Answers applications for admission; only set at the peer that holds the network's credential."""

    def admit_by(self, answer: Callable[[Hello, bytes], bytes]) -> None:
        """Answer applications for admission with this function."""
        self.answer_application = answer

    @property
    def members_only(self) -> bool:
        """Whether the network has a credential, so that only its members get links."""
        return self.tls is not None

    def hello(self, address: str, window_bytes: int, shared_memory: bytes) -> Hello:
        """The first message of a new connection."""
        authority_key, clock_ns = (b"", 0) if self.tls is None else (self.tls.authority_key, self.wall_ns())
        return Hello(
            self.network, self.identity.public_key, address, hello.nonce(), self.incarnation, window_bytes,
            self.identity.issuer_nonce, authority_key, clock_ns, shared_memory,
        )  # fmt: skip

    def check_admitted(self, theirs: Hello, certificate: bytes | None) -> None:
        """Raise `Unadmitted` unless this certificate proves that the sender is the member named in its hello."""
        if self.tls is None:
            return
        now_ns = self.wall_ns()
        if certificate is None:
            raise Unadmitted(
                "unadmitted", "it was not admitted to this network; it must join with a line that a member prints"
            )
        member = certificates.read_member(certificate, self.tls.authority_key)
        check_claim(member, theirs.public_key, theirs.issuer_nonce)
        check_clocks(now_ns, theirs.clock_ns)
        check_lifetime(member, now_ns)

    def admit(self, mine: Hello, application: bytes) -> bytes:
        """Answer an application for admission. Raises `Unadmitted`."""
        if self.answer_application is None:
            raise Unadmitted(
                "token", "this peer cannot admit others; join through the one that holds the network's credential"
            )
        try:
            answer = self.answer_application(mine, application)
        except DiskFailed as problem:
            self._problems.append(str(problem))
            raise Unadmitted("token", "this peer cannot read its tokens; its log says why") from problem
        self._counters["admitted"] += 1
        return answer
