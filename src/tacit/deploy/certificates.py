"""Certificates for a SuperLink, and keys by which it knows its SuperNodes."""

import datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from tacit.engines.sitefolder import write_private

DAYS = 365  # of a server's certificate
YEARS = 10  # of the authority's own
HOST = "127.0.0.1"
_OTHER_USES = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
SIGNS = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    **dict.fromkeys((*_OTHER_USES, "encipher_only", "decipher_only"), False),
)


def write_certificates(folder: Path, host: str = HOST) -> None:
    """Make an authority, and its certificate for a SuperLink: ca.crt, ca.key, server.pem, server.key."""
    authority, issuer = ec.generate_private_key(ec.SECP384R1()), _name("Tacit federation")
    public = authority.public_key()
    root = (
        _begin(issuer, issuer, public, YEARS * DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(SIGNS, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    (folder / "ca.crt").write_bytes(root.sign(authority, SHA256()).public_bytes(Encoding.PEM))
    write_private(folder / "ca.key", _private(authority))
    write_server(folder, host)


def write_server(folder: Path, host: str = HOST) -> None:
    """Make a certificate for a SuperLink, by the authority whose key is there: server.pem, server.key."""
    authority = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)  # as they are made here
    issuer = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()).subject
    server = ec.generate_private_key(ec.SECP384R1())
    names = dict.fromkeys([_host_name(host), _host_name(HOST), x509.DNSName("localhost")])
    leaf = (
        _begin(_name(host[:64]), issuer, server.public_key(), DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
        )
    )
    (folder / "server.pem").write_bytes(leaf.sign(authority, SHA256()).public_bytes(Encoding.PEM))
    write_private(folder / "server.key", _private(server))


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_node_key(path: Path) -> Path:
    """Make a SuperNode's key; return the file of its public half, which the SuperLink registers."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = path.with_suffix(".pub")
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
    return public


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begin(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
    )
