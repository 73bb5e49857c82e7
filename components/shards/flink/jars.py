"""The jars of Flink and of Beam's job server, in the user's cache.

`strategos engine setup` downloads them once, by Maven and the pinned pom.xml beside
this file; a run only looks for them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from strategos.components.errors import BadInputError, UserError, first_line
from strategos.components.files import commit
from strategos.components.shards.flink import java

FLINK = "1.19"
"""The Flink release that the job server works with."""

SETUP = "strategos engine setup"
"""The command that downloads the jars."""

OWN = "own.jar"
"""The file with our own classes, which stays apart: Beam's scan sees it."""

_CLASSES = ("HiddenJars.java", "LocalCallersOnly.java")
_PARTS = ("pom.xml", *_CLASSES)
_SECONDS = 540  # 152 MB in 160 files


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the jars, which need not exist.

    Args:
      environ: The environment; STRATEGOS_CACHE or XDG_CACHE_HOME moves the cache.
    """
    digest = hashlib.sha256(b"".join(map(_source, _PARTS))).hexdigest()[:12]
    if not (cache := environ.get("STRATEGOS_CACHE")):
        home = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = os.path.join(home, "strategos")
    return Path(cache, f"flink-{FLINK}-{digest}").absolute()


def find(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the jars: with the jars in `lib`, and `OWN`.

    Args:
      environ: The environment.

    Raises:
      BadInputError: The jars were never downloaded.
    """
    path = folder(environ)
    if not path.is_dir():
        raise BadInputError(
            f"the jars of Flink {FLINK} and Beam's job server are not in {path}",
            remedy=f"Run `{SETUP}` once (it downloads 150 MB from Maven Central).",
        )
    return path


def setup(environ: Mapping[str, str] = os.environ) -> Path:
    """Downloads the jars, unless they exist.

    The folder gets its name when it is complete, so that no run finds half of it.

    Args:
      environ: The environment.

    Returns:
      The folder.

    Raises:
      BadInputError: Java's compiler or Maven is missing.
      UserError: Maven failed, e.g. without a network.
    """
    target = folder(environ)
    if target.is_dir():
        return target
    javac, jar = (java.program(name, environ) for name in ("javac", "jar"))
    maven = _maven(environ)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".flink-") as made:
        for name in _PARTS:
            Path(made, name).write_bytes(_source(name))
        copy = ["-DincludeScope=runtime", f"-DoutputDirectory={made}/lib"]
        _call([maven, "-q", "-B", "dependency:copy-dependencies", *copy], made)
        release = ["--release", str(min(java.RELEASES))]
        _call([javac, "-nowarn", *release, "-d", "classes", *_CLASSES], made)
        with commit.aside(target, shared=True) as whole:
            whole.mkdir()
            _call(
                [jar, "--create", "--file", str(whole / OWN), "-C", "classes", "."],
                made,
            )
            Path(made, "lib").rename(whole / "lib")
    return target


def _source(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()


def _maven(environ: Mapping[str, str]) -> str:
    program = shutil.which("mvn", path=environ.get("PATH", os.defpath))
    if program is None:
        raise BadInputError(
            "mvn (Maven), which downloads Flink's jars, is not in the PATH",
            remedy="Install it (Debian, Ubuntu: apt-get install maven).",
        )
    return program


def _call(command: list[str], cwd: str) -> None:
    """Runs a command that prints its errors.

    Raises:
      UserError: The command failed or took too long.
    """
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{command[0]} did not end within {_SECONDS} s",
            remedy="Check the network and Maven's settings (~/.m2/settings.xml).",
        ) from None
    if done.returncode:
        sys.stderr.write(done.stdout)
        errors = [line for line in done.stdout.splitlines() if "rror" in line]
        raise UserError(
            f"{command[0]} failed: {first_line(errors[0] if errors else done.stdout)}",
            remedy="Check the network and Maven's settings (~/.m2/settings.xml).",
        )
