"""The network's credential, certificates and tokens on disk, with a clock that the test gives."""

import ssl
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.live.admission.authority import BACKDATED, MEMBER_DAYS, Authority
from quillcast.live.admission.joinline import JoinLine
from quillcast.live.admission.keyring import CONTACTS_MAX, Keyring, admit_here, user_folder
from quillcast.live.transport.certificates import authority_key, load, read_member
from quillcast.live.transport.hello import Identity
from quillcast.protocol.security.members import Unadmitted, check_lifetime

S, DAY = 10**9, 86400 * 10**9
NOW = 1_800_000_000 * S
LINE = JoinLine("192.0.2.1:4000", "a" * 32, "token")


def test_a_certificate_gives_the_peer_its_place_and_its_time() -> None:
    authority, peer = Authority.new("lab", NOW), Identity.new()
    member = read_member(authority.admit(peer.public_key, NOW, b"n" * 16), authority.public_key)
    assert (member.public_key, member.nonce) == (peer.public_key, b"n" * 16)
    assert member.node_id == Identity.of_secret(peer.secret, b"n" * 16).node_id
    assert member.from_ns == NOW - BACKDATED.total_seconds() * S
    assert member.until_ns == NOW + MEMBER_DAYS * DAY
    check_lifetime(member, NOW)
    with pytest.raises(Unadmitted, match="begins 1 day from now by this machine's clock; set the clock"):
        check_lifetime(member, NOW - DAY)


def test_a_peer_cannot_choose_its_place() -> None:
    authority, peer = Authority.new("lab", NOW), Identity.new()
    places = {read_member(authority.admit(peer.public_key, NOW), authority.public_key).node_id for _ in range(20)}
    assert len(places) == 20


def test_certificates_of_others_and_of_no_peer_are_refused() -> None:
    authority, other, peer = Authority.new("lab", NOW), Authority.new("lab", NOW), Identity.new()
    with pytest.raises(Unadmitted, match=f"is not of the network {authority.fingerprint}"):
        read_member(other.admit(peer.public_key, NOW), authority.public_key)
    with pytest.raises(Unadmitted, match="is not that of a peer"):
        read_member(authority.certificate, authority.public_key)
    with pytest.raises(Unadmitted, match="is not that of a peer"):
        read_member(b"no certificate", authority.public_key)
    flipped = bytearray(authority.admit(peer.public_key, NOW))
    flipped[-1] ^= 1
    with pytest.raises(Unadmitted):
        read_member(bytes(flipped), authority.public_key)


@pytest.mark.filterwarnings("error")
def test_a_damaged_certificate_is_refused_or_says_what_it_said() -> None:
    authority, peer, random = Authority.new("lab", NOW), Identity.new(), Random(7)
    whole = authority.admit(peer.public_key, NOW)
    damaged = [whole[:size] for size in range(len(whole))]
    for _ in range(2000):
        bytes_ = bytearray(whole)
        for _ in range(random.randint(1, 4)):
            bytes_[random.randrange(len(bytes_))] = random.randrange(256)
        damaged.append(bytes(bytes_))
    genuine = read_member(whole, authority.public_key)
    for one in damaged:
        with suppress(Unadmitted):  # the few bytes around what is signed may change, and say nothing
            assert read_member(one, authority.public_key) == genuine
        with suppress(Unadmitted):
            authority_key(one)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("first", [0x00, 0x80])
def test_a_serial_number_that_is_not_positive_is_refused(first: int) -> None:
    authority, peer = Authority.new("lab", NOW), Identity.new()
    member = authority.admit(peer.public_key, NOW)
    text = "the serial number of its certificate is not positive"
    with pytest.raises(Unadmitted, match=text):
        read_member(with_serial(member, first), authority.public_key)
    damaged = with_serial(authority.certificate, first)
    with pytest.raises(Unadmitted, match=text):
        authority_key(damaged)
    key = authority.pem.partition(b"-----BEGIN CERTIFICATE")[0]
    with pytest.raises(LocalError, match=f"this network credential cannot be used: {text}"):
        Authority.of_pem(key + ssl.DER_cert_to_PEM_cert(damaged).encode())
    assert Authority.of_pem(authority.pem).fingerprint == authority.fingerprint


def with_serial(certificate: bytes, first: int) -> bytes:
    """The certificate with a serial number of the same length: zero, or a negative one that begins so."""
    serial = load(certificate).serial_number
    size = serial.bit_length() // 8 + 1
    return certificate.replace(serial.to_bytes(size), bytes([first]) + bytes(size - 1), 1)


def test_a_credential_is_kept_in_a_file_of_the_owner_alone_and_made_once(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "deep" / "folder")
    assert (keyring.authority(), keyring.fingerprint) == (None, None)
    assert not keyring.folder.exists()
    made = keyring.make_authority("lab", NOW)
    assert keyring.make_authority("lab", NOW).fingerprint == made.fingerprint == keyring.fingerprint
    files = {path.name: path.stat().st_mode & 0o777 for path in keyring.folder.iterdir()}
    assert files == {"network.pem": 0o600, "members.sqlite": 0o600}
    assert keyring.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_file_that_is_not_a_credential_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "network.pem").write_bytes(content)
    with pytest.raises(LocalError, match=r"network\.pem: this is not a network credential"):
        Keyring(tmp_path).authority()


def test_an_identity_serves_one_process_at_a_time(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    authority = keyring.make_authority("lab", NOW)
    keyring.add([admit_here(authority, lambda: NOW) for _ in range(2)])
    first, second = keyring.lock_identity(), keyring.lock_identity()
    assert first is not None
    assert second is not None
    assert keyring.lock_identity() is None
    assert first.identity.node_id != second.identity.node_id
    first.close()
    again = Keyring(tmp_path).lock_identity()
    assert again is not None
    assert again.identity.node_id == first.identity.node_id
    assert keyring.take() is None  # both are in use
    again.close()
    taken = keyring.take()
    assert taken == (first.identity.secret, first.certificate)
    assert keyring.count == 1
    second.close()


def test_a_folder_belongs_to_one_network(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    mine, other = keyring.make_authority("lab", NOW), Authority.new("lab", NOW)
    keyring.trust(mine.certificate)
    with pytest.raises(LocalError, match=f"belongs to another network .credential {mine.fingerprint}"):
        keyring.trust(other.certificate)
    assert keyring.certificate is not None
    assert authority_key(keyring.certificate) == mine.public_key


def test_a_token_is_consumed_only_by_its_use(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    token = keyring.issue_token(900.0, NOW)
    with pytest.raises(Unadmitted, match="did not issue its token"):
        keyring.use_token("guessed", NOW)
    with pytest.raises(Unadmitted, match="expired 1 minute ago"):
        keyring.use_token(token, NOW + 960 * S)
    Keyring(tmp_path).use_token(token, NOW + 899 * S)
    with pytest.raises(Unadmitted, match="was used 1 minute ago"):
        keyring.use_token(token, NOW + 960 * S)
    assert token.encode() not in (tmp_path / "members.sqlite").read_bytes()


def test_contacts_are_bounded_and_that_of_the_line_stays(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    keyring.make_authority("lab", NOW)
    keyring.note_contacts(["holder:1"], 1 << 62)
    for number in range(3 * CONTACTS_MAX):
        keyring.note_contacts([f"peer:{number}"], NOW + number)
    assert keyring.contacts()[:2] == ["holder:1", f"peer:{3 * CONTACTS_MAX - 1}"]
    assert len(keyring.contacts()) == CONTACTS_MAX


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DiskFailed, match="file/network cannot be used: Not a directory"):
        Keyring(tmp_path / "file" / "network").make_authority("lab", NOW)


def test_the_users_folder_is_where_the_desktop_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "me"))
    assert user_folder("lab") == tmp_path / "me" / "quillcast" / "lab"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_folder("lab") == tmp_path / ".config" / "quillcast" / "lab"


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        JoinLine("[2001:db8::1]:4000", "2" * 32, "t"),
        JoinLine("host:1", "b" * 32),
        JoinLine("h:1", "c" * 32, "t", "lab"),
    ],
    ids=str,
)
def test_a_line_reads_as_it_was_written(line: JoinLine) -> None:
    assert JoinLine.parse(f"  {line}\n") == line


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "not a join line"),
        ("192.0.2.1:4000", "not a join line"),
        ("http://192.0.2.1:4000/" + "a" * 32, "not a join line"),
        ("quillcast://192.0.2.1/" + "a" * 32, "is not an address"),
        ("quillcast://192.0.2.1:4000/abc?token=t", "'abc' is not a fingerprint"),
        ("quillcast://192.0.2.1:4000/" + "a" * 32 + "?toke=t", "'toke' is not part"),
    ],
)
def test_an_invalid_join_line_is_rejected_without_repeating_its_token(text: str, part: str) -> None:
    with pytest.raises(LocalError, match=part) as refused:
        JoinLine.parse(text)
    assert "token=t" not in str(refused.value)


def test_an_unusable_folder_is_reported_before_a_token_is_used(tmp_path: Path) -> None:
    with pytest.raises(DiskFailed, match="/dev/null/quillcast cannot be used: Not a directory"):
        Keyring(Path("/dev/null/quillcast")).prepare()
    Keyring(tmp_path / "not" / "yet").prepare()
    assert list(tmp_path.iterdir()) == []
