"""X.509 certificates: their content, and which network signed them.

A member's certificate is signed by the network's Ed25519 key and contains the peer's own key. It has one extension: the
issuer's nonce, which is part of the nodeId (`protocol.security.members`).
"""

from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from quillcast.protocol.security.members import NONCE_BYTES, CertifiedPeer, Unadmitted, fingerprint

NONCE_OID = x509.ObjectIdentifier("2.25.197262913640372291158034166573107164483")  # a UUID of ours: X.667, clause 6.3

_VERSION_TAG = 0xA0

ATTRIBUTES = {
    "common_name": NameOID.COMMON_NAME,
    "organization": NameOID.ORGANIZATION_NAME,
    "organizational_unit": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "locality": NameOID.LOCALITY_NAME,
    "country": NameOID.COUNTRY_NAME,
}
"""The attributes of a certificate's subject that scopes may ask for. The common name is the nodeId."""

_UNREADABLE = (
    ValueError, TypeError, OverflowError, IndexError, UnsupportedAlgorithm, x509.InvalidVersion, x509.ExtensionNotFound,
    x509.DuplicateExtension,
)  # fmt: skip


def authority_key(certificate: bytes) -> bytes:
    """Read the public key in a network's certificate. Raises `Unadmitted` if it is invalid."""
    try:
        key = load(certificate).public_key()
    except _UNREADABLE as problem:
        raise Unadmitted("certificate", "its network's certificate is invalid") from problem
    if not isinstance(key, Ed25519PublicKey):
        raise Unadmitted("certificate", "its network's certificate holds no Ed25519 key")
    return key.public_bytes_raw()


def read_member(certificate: bytes, by: bytes) -> CertifiedPeer:
    """Read a member's certificate. Raises `Unadmitted` unless the network with public key `by` signed it."""
    try:
        read = load(certificate)
        Ed25519PublicKey.from_public_bytes(by).verify(read.signature, read.tbs_certificate_bytes)
        key = read.public_key()
        extension = read.extensions.get_extension_for_oid(NONCE_OID).value
    except InvalidSignature as problem:
        raise Unadmitted("network", f"its certificate is not of the network {fingerprint(by)}") from problem
    except _UNREADABLE as problem:
        raise Unadmitted("certificate", "its certificate is not that of a peer") from problem
    nonce = extension.value if isinstance(extension, x509.UnrecognizedExtension) else b""
    if not isinstance(key, Ed25519PublicKey) or len(nonce) != NONCE_BYTES:
        raise Unadmitted("certificate", "its certificate is not that of a peer")
    from_ns, until_ns = _ns(read.not_valid_before_utc), _ns(read.not_valid_after_utc)
    return CertifiedPeer(key.public_bytes_raw(), nonce, from_ns, until_ns)


def load(certificate: bytes) -> x509.Certificate:
    """Read a certificate. Raises `Unadmitted` for a serial number that RFC 5280 forbids, and for `_UNREADABLE` errors.

    Some versions of the library accept such a number with a warning, others reject it.
    """
    if _serial(certificate) <= 0:
        raise Unadmitted(
            "certificate", "the serial number of its certificate is not positive; make another certificate"
        )
    return x509.load_der_x509_certificate(certificate)


def attributes(certificate: bytes) -> dict[str, str]:
    """The attributes of the subject in a certificate that was checked before, by the names in `ATTRIBUTES`."""
    subject = x509.load_der_x509_certificate(certificate).subject
    names = {oid: name for name, oid in ATTRIBUTES.items()}
    return {names[each.oid]: str(each.value) for each in subject if each.oid in names}


def secret_pem(key: Ed25519PrivateKey) -> bytes:
    """A secret key in the format of OpenSSL's files, without a password."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def pem(certificate: bytes) -> bytes:
    """A certificate in the format of OpenSSL's files."""
    return x509.load_der_x509_certificate(certificate).public_bytes(serialization.Encoding.PEM)


def _serial(certificate: bytes) -> int:
    """The serial number: the first field of the first field of a certificate, after the version if there is one."""
    at, _ = _element(certificate, _element(certificate, 0)[0])
    if certificate[at] == _VERSION_TAG:
        at = _element(certificate, at)[1]
    first, last = _element(certificate, at)
    return int.from_bytes(certificate[first:last], signed=True)


def _element(der: bytes, at: int) -> tuple[int, int]:
    """Return the start and end of the value of the element at a place. Raises `IndexError`."""
    size, at = der[at + 1], at + 2
    if size & 0x80:  # the size follows in this many bytes
        more = size & 0x7F
        size, at = int.from_bytes(der[at : at + more]), at + more
    return at, at + size


def _ns(time: datetime) -> int:
    return int(time.timestamp()) * 10**9
