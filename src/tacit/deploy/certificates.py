"""Certificates for a SuperLink, and keys by which it knows its SuperNodes."""

from __future__ import annotations

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
)
from cryptography.x509.oid import NameOID

from tacit.engines.sitefolder import write_private

DAYS = 365


def write_certificates(folder: Path, host: str = "127.0.0.1") -> None:
    """Make a certificate authority and a certificate for a SuperLink: ca.crt, server.pem, server.key.

    The authority's own key is thrown away: it can vouch for nobody else.
    """
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = _name("Tacit federation")
    root = _begun(issuer, issuer, authority)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    root = root.add_extension(_usage(signs=True), critical=True)
    root = root.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False
    )
    leaf = _begun(_name(host), issuer, server)
    leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    leaf = leaf.add_extension(x509.SubjectAlternativeName(_known_as(host)), critical=False)
    leaf = leaf.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
    )
    (folder / "ca.crt").write_bytes(root.sign(authority, SHA256()).public_bytes(Encoding.PEM))
    (folder / "server.pem").write_bytes(leaf.sign(authority, SHA256()).public_bytes(Encoding.PEM))
    private = server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_private(folder / "server.key", private)


def write_node_key(path: Path) -> Path:
    """Make a SuperNode's key; gives the file of its public half, which the SuperLink registers."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = path.with_suffix(".pub")
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
    return public


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _known_as(host: str) -> list[x509.GeneralName]:
    try:
        return [x509.IPAddress(ip_address(host)), x509.DNSName("localhost")]
    except ValueError:
        return [x509.DNSName(host)]
