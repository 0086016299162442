"""On whose behalf a peer acts, and where."""

from quillcast.live.credentials import Credentials
from quillcast.protocol.security.access import bearer, principal

CREDENTIALS = Credentials.new()
NODE, OTHER_NODE, TOPIC, OTHER_TOPIC = b"n" * 16, b"o" * 16, b"t" * 16, b"u" * 16


def test_a_warrant_serves_one_peer_in_one_topic() -> None:
    warrant = CREDENTIALS.warrant(NODE, TOPIC)
    assert bearer(warrant, NODE, TOPIC) == principal(CREDENTIALS.public_key)
    assert bearer(warrant, OTHER_NODE, TOPIC) == ""
    assert bearer(warrant, NODE, OTHER_TOPIC) == ""
    assert bearer(None, NODE, TOPIC) == ""
