"""Finds uv, or installs it into a private folder: standard library only.

The wheel comes from the index that pip or uv are configured for. Neither pip nor venv
is needed, and only `.cache/uv-VERSION/` is written. The download must match the SHA-256
that the index states.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import html.parser
import io
import json
import os
import platform
import re
import shutil
import ssl
import subprocess
import urllib.parse
import urllib.request
import zipfile
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

# The only pin of uv's version. Versions from OLDEST on, and before NEXT, read the lock;
# a uv on PATH outside of this range is not used.
OLDEST = (0, 9, 0)
NEXT = (0, 14, 0)

PYPI = "https://pypi.org/simple"
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
TIMEOUT = 60  # Seconds without a byte.
# Exceptions of a download from a host that is unreachable or is not an index.
FAILURES = (OSError, ValueError, KeyError, HTTPException, zipfile.BadZipFile)


class UvError(Exception):
    """uv can neither be found nor installed; the message includes the remedy."""


class Wheel(NamedTuple):
    """One file of the index, with its expected SHA-256."""

    version: tuple
    url: str
    sha256: str


def find_or_install(cache: Path) -> Path:
    """Returns a uv in the supported range: from PATH, `cache`, or the index.

    Args:
        cache: The private folder; a download is stored as `cache/uv-VERSION/uv`.

    Raises:
        UvError: No uv is installed, and the download failed.
    """
    for candidate in [shutil.which("uv"), *map(str, sorted(cache.glob("uv-*/uv")))]:
        if candidate and in_range(version_of(candidate)):
            return Path(candidate)
    index = index_url()
    print(f"Installing uv into {cache}", flush=True)
    try:
        wheel = newest_wheel(index)
        return unpack(download(wheel, index), cache / ("uv-" + dotted(wheel.version)))
    except (
        OSError,
        ValueError,
        KeyError,
    ) as e:  # URLError and bad zips are among them.
        raise UvError(
            f"uv is needed and could not be installed from {public(index)}: {e}\n"
            f"  Set PIP_INDEX_URL to an index that this machine reaches, or install "
            f"uv >= {dotted(OLDEST)}, < {dotted(NEXT)} yourself: pip install "
            f"'uv>={dotted(OLDEST)},<{dotted(NEXT)}'"
        ) from None


def version_of(uv: str) -> tuple:
    """Returns the version of a uv program, `()` if it does not run."""
    try:
        printed = subprocess.run(
            [uv, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return ()
    return parse_version(printed.stdout.decode().partition(" ")[2])


def parse_version(text: str) -> tuple:
    """Returns `(0, 9, 1)` for "0.9.1 (abc 2026-01-01)", `()` for a pre-release."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)(?![\w.])", text)
    return tuple(int(part) for part in found.groups()) if found else ()


def in_range(version: tuple) -> bool:
    """Returns whether this version of uv is supported: from OLDEST, before NEXT."""
    return OLDEST <= version < NEXT


def dotted(version: tuple) -> str:
    """Returns "0.9.1" for `(0, 9, 1)`."""
    return ".".join(str(part) for part in version)


def index_url() -> str:
    """Returns the simple index that uv or pip are configured for, else PyPI's."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if os.environ.get(name):
            # UV_DEFAULT_INDEX may be NAME=URL.
            return re.sub(r"^[\w-]+=(?=\w+://)", "", os.environ[name])
    return pip_setting("index-url") or PYPI


def pip_setting(key: str) -> str:
    """Returns a global setting from pip's configuration files, "" if it is unset."""
    home = Path(os.path.expanduser("~"))
    config_home = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [
        Path("/etc/xdg/pip/pip.conf"),
        Path("/etc/pip.conf"),
        home / ".pip" / "pip.conf",
        config_home / "pip" / "pip.conf",
        Path(os.environ.get("PIP_CONFIG_FILE", os.devnull)),
    ]
    settings = configparser.RawConfigParser()
    settings.read([str(file) for file in files])
    return settings.get("global", key, fallback="")


def newest_wheel(index: str) -> Wheel:
    """Returns the newest supported wheel of uv for this machine on the index.

    Raises:
        OSError: The index cannot be reached.
        ValueError: The index has no such wheel.
    """
    page_url = public(index).rstrip("/") + "/uv/"
    with open_url(page_url, index, ACCEPT) as answer:
        body = answer.read().decode()
        is_json = "json" in answer.headers.get("Content-Type", "")
        links = json_links(body) if is_json else html_links(body)
        base = answer.geturl()
    wheels = []
    for href, sha256 in links:
        url = urllib.parse.urljoin(base, href)
        version = wheel_version(urllib.parse.unquote(url.rpartition("/")[2]))
        if in_range(version):
            wheels.append(Wheel(version, url, sha256))
    if not wheels:
        raise ValueError(
            f"{page_url} lists no uv >= {dotted(OLDEST)}, < {dotted(NEXT)} "
            f"for {platform.machine()}"
        )
    return max(wheels)


def wheel_version(file_name: str) -> tuple:
    """Returns the version of a wheel for this machine, `()` for any other file."""
    found = re.match(r"uv-([^-]+)-py3-none-(manylinux\w+(?:\.\w+)*)\.whl$", file_name)
    if not found or not found.group(2).endswith("_" + platform.machine()):
        return ()
    return parse_version(found.group(1))


def json_links(body: str) -> list:
    """Returns (URL, SHA-256) of the files of a JSON page (PEP 691), except yanked."""
    return [
        (file["url"], file.get("hashes", {}).get("sha256", ""))
        for file in json.loads(body)["files"]
        if not file.get("yanked")
    ]


def html_links(body: str) -> list:
    """Returns (URL, SHA-256) of the files of an HTML page (PEP 503), except yanked."""
    links = []

    class Anchors(html.parser.HTMLParser):
        """Collects `<a href="URL#sha256=…">`."""

        def handle_starttag(self, tag: str, attrs: list) -> None:
            """Handles one tag."""
            found = dict(attrs)
            if tag == "a" and found.get("href") and "data-yanked" not in found:
                url, fragment = urllib.parse.urldefrag(found["href"])
                sha256 = urllib.parse.parse_qs(fragment).get("sha256", [""])
                links.append((url, sha256[0]))

    Anchors().feed(body)
    return links


def download(wheel: Wheel, index: str) -> bytes:
    """Downloads a wheel and checks its SHA-256.

    Raises:
        ValueError: The SHA-256 is missing from the index or differs.
    """
    with open_url(wheel.url, index) as answer:
        content = answer.read()
    received = hashlib.sha256(content).hexdigest()
    if received != wheel.sha256:
        raise ValueError(
            f"{wheel.url} has SHA-256 {received}, the index states "
            f"{wheel.sha256 or 'none'}; nothing was installed"
        )
    return content


def unpack(content: bytes, folder: Path) -> Path:
    """Writes the wheel's `uv` program to `folder/uv`, atomically."""
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        name = next(n for n in wheel.namelist() if n.endswith(".data/scripts/uv"))
        program = wheel.read(name)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"uv.{os.getpid()}"
    part.write_bytes(program)
    part.chmod(0o755)
    part.replace(folder / "uv")
    return folder / "uv"


def open_url(url: str, index: str, accept: str = "*/*"):
    """Opens a URL; sends the index's user and password only to the index's host."""
    request = urllib.request.Request(
        url, headers={"Accept": accept, "User-Agent": "strategos-setup"}
    )
    owner = urllib.parse.urlsplit(index)
    if owner.username and owner.hostname == urllib.parse.urlsplit(url).hostname:
        words = urllib.parse.unquote(f"{owner.username}:{owner.password or ''}")
        token = base64.b64encode(words.encode()).decode()
        request.add_unredirected_header("Authorization", "Basic " + token)
    return urllib.request.urlopen(request, timeout=TIMEOUT, context=tls())


def tls() -> ssl.SSLContext:
    """Returns the default context (SSL_CERT_FILE, SSL_CERT_DIR) plus pip's bundle."""
    context = ssl.create_default_context()
    bundle = os.environ.get("PIP_CERT") or pip_setting("cert")
    if bundle and os.path.exists(bundle):
        context.load_verify_locations(bundle)
    return context


def public(url: str) -> str:
    """Returns the URL without credentials."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
