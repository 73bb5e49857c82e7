"""The Java that runs Flink and Beam's job server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from strategos.components.errors import BadInputError

RELEASES = (17, 21)
"""The releases that Flink 1.19 with Beam's job server is tested on."""

_REMEDY = (
    "Install one (Debian 12, Ubuntu: apt-get install openjdk-17-jdk-headless; Debian "
    "13: openjdk-21-jdk-headless), and set JAVA_HOME if it is not the default."
)
_SECONDS = 30


def program(name: str = "java", environ: Mapping[str, str] = os.environ) -> str:
    """Path of a program of the Java in use: JAVA_HOME's, else the one on the PATH.

    Args:
      name: `java`, `javac` or `jar`.
      environ: The environment.

    Raises:
      BadInputError: The program is missing, or of a release not in `RELEASES`.
    """
    home = environ.get("JAVA_HOME")
    path = os.path.join(home, "bin") if home else environ.get("PATH", os.defpath)
    executable = shutil.which(name, path=path)
    if executable is None:
        place = f"JAVA_HOME={home}" if home else "the PATH"
        raise BadInputError(
            f"Flink needs {name}, which is not in {place}", remedy=_REMEDY
        )
    version = release(shutil.which("java", path=path) or executable)
    if version not in RELEASES:
        raise BadInputError(
            "Flink 1.19 is tested on Java " + " and ".join(map(str, RELEASES)),
            received=f"Java {version or 'of an unknown release'} ({executable})",
            remedy=_REMEDY,
        )
    return executable


def release(path: str) -> int | None:
    """The Java release of a program, such as 17; None if it prints none.

    Args:
      path: Path of `java`.
    """
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match.group(1)) if match else None
