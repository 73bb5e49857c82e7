"""The cluster's certificate authority and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from sandbox import API_SERVER, HOST

NODE = "node1"
_DAYS = 365
_API_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
_API_ADDRESSES = ("127.0.0.1", "10.96.0.1", HOST)
_USAGES = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]


def make(folder: Path) -> None:
    """Makes all keys, certificates, and clients' files.

    Args:
      folder: Created; gets `ca.crt`, and for each of `apiserver`, `admin` and the node
        a `.crt` and a `.key`; `admin.conf` and the node's; `tokens.key` and
        `tokens.pub` for the tokens of service accounts.
    """
    folder.mkdir(mode=0o700)
    ca_key = _key(folder / "ca.key")
    authority = _name("strategos-cluster")
    ca = _certificate(authority, ca_key, authority, ca_key, True)
    _write(folder / "ca.crt", ca)

    def sign(file: str, name: x509.Name, names: Sequence[str], ips: Sequence[str]):
        key = _key(folder / f"{file}.key")
        signed = _certificate(name, key, ca.subject, ca_key, False, names, ips)
        _write(folder / f"{file}.crt", signed)

    sign("apiserver", _name("kube-apiserver"), _API_NAMES, _API_ADDRESSES)
    sign("admin", _name("admin", "system:masters"), ["admin"], [])
    sign(NODE, _name(f"system:node:{NODE}", "system:nodes"), [NODE], [HOST])
    for user in ("admin", NODE):
        (folder / f"{user}.conf").write_text(_client(folder, user))
    tokens = _key(folder / "tokens.key").public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = serialization.Encoding.PEM
    (folder / "tokens.pub").write_bytes(tokens.public_bytes(pem, form))


def _name(common: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _key(file: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    file.touch(mode=0o600)
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return key


def _certificate(
    name: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    is_authority: bool,
    names: Sequence[str] = (),
    addresses: Sequence[str] = (),
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    )
    if names or addresses:
        other = [x509.DNSName(each) for each in names]
        other += [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
        usage = x509.ExtendedKeyUsage(_USAGES)
        builder = builder.add_extension(x509.SubjectAlternativeName(other), False)
        builder = builder.add_extension(usage, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _write(file: Path, certificate: x509.Certificate) -> None:
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _client(folder: Path, user: str) -> str:
    cluster = {"server": API_SERVER, "certificate-authority": f"{folder}/ca.crt"}
    files = {
        "client-certificate": f"{folder}/{user}.crt",
        "client-key": f"{folder}/{user}.key",
    }
    context = {"cluster": "strategos", "user": user}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "strategos", "cluster": cluster}],
            "users": [{"name": user, "user": files}],
            "contexts": [{"name": "strategos", "context": context}],
            "current-context": "strategos",
        }
    )
