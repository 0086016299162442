"""The network credential, and the certificates with which it admits peers (`live.transport.certificates`)."""

import secrets
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from quillcast.core.errors import LocalError
from quillcast.live.transport.certificates import ATTRIBUTES, NONCE_OID, load, pem, secret_pem
from quillcast.protocol.security.members import NONCE_BYTES, Unadmitted, fingerprint, member_id

MEMBER_DAYS = 3650  # a guess: revocation, not expiry, ends a membership
AUTHORITY_DAYS = 36500
BACKDATED = timedelta(hours=1)  # so that all clocks within `CLOCK_SKEW_MAX_S` accept a new certificate immediately

_NO_USAGE = {
    "digital_signature": False, "content_commitment": False, "key_encipherment": False, "data_encipherment": False,
    "key_agreement": False, "key_cert_sign": False, "crl_sign": False, "encipher_only": False, "decipher_only": False,
}  # fmt: skip


class Authority:
    """A network's credential: the key that admits peers. Its holder decides who is a member."""

    def __init__(self, key: Ed25519PrivateKey, certificate: bytes) -> None:
        self._key, self.certificate = key, certificate
        self.public_key = key.public_key().public_bytes_raw()
        self.fingerprint = fingerprint(self.public_key)

    @classmethod
    def new(cls, network: str, now_ns: int) -> "Authority":
        """The credential of a new network, from the system's random source."""
        key, now = Ed25519PrivateKey.generate(), _datetime(now_ns)
        name = _name(network)
        builder = _builder(name, name, key.public_key(), now, now + timedelta(days=AUTHORITY_DAYS))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = x509.KeyUsage(**{**_NO_USAGE, "key_cert_sign": True, "crl_sign": True})
        builder = builder.add_extension(usage, critical=True)
        return cls(key, _der(builder.sign(key, None)))

    @classmethod
    def of_pem(cls, pem: bytes) -> "Authority":
        """Read a credential. Raises `LocalError` if the bytes are invalid."""
        try:
            key = serialization.load_pem_private_key(pem, None)
            certificate = load(_certificate_of(pem))
        except Unadmitted as problem:
            raise LocalError(f"this network credential cannot be used: {problem}") from problem
        except (ValueError, TypeError, IndexError) as problem:
            raise LocalError("this is not a network credential (an Ed25519 key and its certificate)") from problem
        if not isinstance(key, Ed25519PrivateKey) or key.public_key() != certificate.public_key():
            raise LocalError("this is not a network credential (an Ed25519 key and its certificate)")
        return cls(key, _der(certificate))

    @property
    def pem(self) -> bytes:
        """The bytes to store. They must be kept secret."""
        return secret_pem(self._key) + pem(self.certificate)

    def admit(
        self, public_key: bytes, now_ns: int, nonce: bytes | None = None,
        attributes: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:  # fmt: skip
        """A member's certificate for a peer's key. The nonce, and so its place on the ring, is drawn here.

        `attributes` describe its subject besides the common name (`certificates.ATTRIBUTES`).
        """
        nonce = secrets.token_bytes(NONCE_BYTES) if nonce is None else nonce
        now, key = _datetime(now_ns), Ed25519PublicKey.from_public_bytes(public_key)
        subject = _name(member_id(public_key, nonce).hex(), attributes)
        issuer = x509.load_der_x509_certificate(self.certificate).subject
        builder = _builder(subject, issuer, key, now, now + timedelta(days=MEMBER_DAYS))
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.KeyUsage(**{**_NO_USAGE, "digital_signature": True}), critical=True)
        builder = builder.add_extension(x509.UnrecognizedExtension(NONCE_OID, nonce), critical=False)
        return _der(builder.sign(self._key, None))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Ed25519PublicKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(until)
    )


def check_attributes(attributes: Mapping[str, str]) -> None:
    """Raise `LocalError` for attributes that a certificate cannot have."""
    known = ATTRIBUTES.keys() - {"common_name"}
    for name, value in attributes.items():
        if name not in known:
            raise LocalError(
                f"{name!r} is not a certificate attribute that you can set; use {', '.join(sorted(known))}"
            )
        try:
            _name("", {name: value})
        except ValueError:
            what = "a country's two letters" if name == "country" else "text of 1 to 64 characters"
            raise LocalError(f"{name} = {value!r} does not fit into a certificate; use {what}") from None


def _name(text: str, attributes: Mapping[str, str] = MappingProxyType({})) -> x509.Name:
    others = [x509.NameAttribute(ATTRIBUTES[name], value) for name, value in sorted(attributes.items())]
    return x509.Name([*([x509.NameAttribute(NameOID.COMMON_NAME, text)] if text else []), *others])


def _certificate_of(pem: bytes) -> bytes:
    """The certificate in a credential, which also contains a key. Raises `ValueError`."""
    text = pem.decode("ascii")
    return ssl.PEM_cert_to_DER_cert(text[text.index(ssl.PEM_HEADER) : text.index(ssl.PEM_FOOTER)] + ssl.PEM_FOOTER)


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def _datetime(ns: int) -> datetime:
    return datetime.fromtimestamp(ns // 10**9, UTC)
