"""For whom a peer acts, and in which topic."""

import msgspec

from quillcast.live.admission.credentials import Credentials
from quillcast.protocol.security.access import bearer, entry, principal
from quillcast.protocol.topics.descriptor import Settings, described

CREDENTIALS = Credentials.new()
NODE, OTHER_NODE, TOPIC, OTHER_TOPIC = b"n" * 16, b"o" * 16, b"t" * 16, b"u" * 16


def test_a_warrant_serves_one_peer_in_one_topic() -> None:
    warrant = CREDENTIALS.warrant(NODE, TOPIC)
    assert bearer(warrant, NODE, TOPIC) == principal(CREDENTIALS.public_key)
    assert bearer(warrant, OTHER_NODE, TOPIC) == ""
    assert bearer(warrant, NODE, OTHER_TOPIC) == ""
    assert bearer(None, NODE, TOPIC) == ""


def test_an_owned_topics_descriptor_is_valid_only_if_its_owner_signed_it() -> None:
    owned = CREDENTIALS.own(described("weather", Settings()))
    assert owned.genuine
    assert not msgspec.structs.replace(owned, version=owned.version + 1).genuine
    assert not msgspec.structs.replace(owned, access=(entry("publish", "0" * 32),)).genuine
    assert not msgspec.structs.replace(owned, owner_key=Credentials.new().public_key).genuine
    assert not msgspec.structs.replace(owned, owner_key=b"", access=(entry("publish", "0" * 32),)).genuine
