"""Membership and its end: every rule, with a clock set by the test."""

import hashlib

import pytest

from quillcast.core.ids import node_id
from quillcast.protocol.security.members import (
    CLOCK_SKEW_MAX_S,
    CertifiedPeer,
    Unadmitted,
    check_claim,
    check_clocks,
    check_lifetime,
    fingerprint,
    member_id,
    spoken,
)
from quillcast.protocol.security.tokens import Token, check_token, token_hash

S, DAY = 10**9, 86400 * 10**9
NOW = 1_800_000_000 * S
ALICE = CertifiedPeer(b"a" * 32, b"n" * 16, NOW - DAY, NOW + DAY)


def test_a_node_id_is_a_hash_of_the_key_and_of_the_issuers_nonce() -> None:
    """docs/design.md, section 3: nobody can choose a place on the ring, because the nonce is drawn after the key."""
    assert ALICE.node_id == hashlib.sha256(b"a" * 32 + b"n" * 16).digest()[:16]
    assert member_id(b"a" * 32) == node_id(b"a" * 32)
    assert member_id(b"a" * 32, b"m" * 16) != ALICE.node_id


def test_a_peer_has_only_the_identity_that_its_certificate_states() -> None:
    check_claim(ALICE, ALICE.public_key, ALICE.nonce)
    for key, nonce in ((b"b" * 32, ALICE.nonce), (ALICE.public_key, b"m" * 16), (ALICE.public_key + b"n", b"n" * 15)):
        with pytest.raises(Unadmitted, match="it claims to be the peer") as refused:
            check_claim(ALICE, key, nonce)
        assert refused.value.why == "identity"


@pytest.mark.parametrize(
    ("now_ns", "why", "text"),
    [
        (NOW - 2 * DAY, "clock", "begins 1 day from now"),
        (NOW - DAY - 1, "clock", "begins 0 s from now"),
        (NOW + DAY, "expired", "ended 0 s ago"),
        (NOW + 3 * DAY, "expired", "ended 2 days ago"),
    ],
)
def test_a_certificate_holds_from_its_begin_to_just_before_its_end(now_ns: int, why: str, text: str) -> None:
    check_lifetime(ALICE, NOW - DAY)
    check_lifetime(ALICE, NOW + DAY - 1)
    with pytest.raises(Unadmitted, match=text) as refused:
        check_lifetime(ALICE, now_ns)
    assert refused.value.why == why


def test_clocks_may_differ_by_an_hour_and_not_by_a_day() -> None:
    for skew_s in (-CLOCK_SKEW_MAX_S, 0, CLOCK_SKEW_MAX_S):
        check_clocks(NOW, NOW + int(skew_s) * S)
    with pytest.raises(Unadmitted, match="its clock is 1 day ahead of this machine's; set the one that is wrong"):
        check_clocks(NOW, NOW + DAY)
    with pytest.raises(Unadmitted, match="its clock is 1 day behind this machine's"):
        check_clocks(NOW, NOW - DAY)


def test_a_token_serves_once_and_for_its_life_by_the_issuers_clock() -> None:
    check_token(Token(NOW + 1), NOW)
    with pytest.raises(Unadmitted, match="did not issue its token"):
        check_token(None, NOW)
    with pytest.raises(Unadmitted, match="its token expired 5 minutes ago"):
        check_token(Token(NOW - 300 * S), NOW)
    with pytest.raises(Unadmitted, match="its token was used 10 minutes ago; each token works only once"):
        check_token(Token(NOW + DAY, used_ns=NOW - 600 * S), NOW)
    with pytest.raises(Unadmitted, match="its token was used"):  # the better reason if both apply
        check_token(Token(NOW - 300 * S, used_ns=NOW - 600 * S), NOW)


def test_what_is_kept_of_a_token_is_not_the_token() -> None:
    assert token_hash("secret") != token_hash("Secret")
    assert b"secret" not in token_hash("secret")


def test_a_fingerprint_is_easy_to_copy() -> None:
    found = fingerprint(b"k" * 32)
    assert (len(found), found.isalnum(), found.lower()) == (32, True, found)
    assert found != fingerprint(b"l" * 32)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (59, "1 minute"), (90, "2 minutes"), (3600, "1 hour"), (86399, "1 day")]
)
def test_times_are_printed_in_their_largest_unit(seconds: float, words: str) -> None:
    assert spoken(seconds) == words
