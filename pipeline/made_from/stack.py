"""The stack of this machine: versions, machine, environment; read in milliseconds."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from strategos.components.files import digests

_STRATEGOS = Path(__file__).parents[2]
_PACKAGE = re.compile(r"(?P<name>.+?)-(?P<version>\d[^-]*)\.(dist-info|egg-info)")
_FEATURES = re.compile("sse4|avx|fma|f16c|bmi|amx")
"""Sets of instructions that TensorFlow, oneDNN and Eigen choose code by."""
_VARIABLES = ("TF_", "XLA_", "OMP_", "ONEDNN_", "DNNL_", "CUDA_", "NVIDIA_TF32")
_NOT_OF_RESULTS = ("TF_CPP_", "TF_CLI_")  # logging; another program's


def of_this_machine() -> dict[str, dict[str, str]]:
    """The stack of this process, with a hash of the code of Strategos' components.

    Returns:
      Texts by name, in the sections `python`, `packages`, `machine`, `environment`.
    """
    return {
        "python": {"version": platform.python_version()},
        "packages": {**_packages(), "strategos.components": components()},
        "machine": _machine(),
        "environment": _environment(os.environ),
    }


@functools.cache
def components() -> str:
    """A hash of the code of Strategos' components."""
    return digests.of_sources(_STRATEGOS / "components")


def _packages() -> dict[str, str]:
    """The installed packages by the names of their folders: nothing is parsed."""
    versions: dict[str, str] = {}
    for entry in map(Path, reversed(sys.path)):  # the first one is imported
        for folder in entry.glob("*-info") if entry.is_dir() else ():
            if matched := _PACKAGE.fullmatch(folder.name):
                versions[matched["name"].replace("_", "-").lower()] = matched["version"]
    return dict(sorted(versions.items()))


def _machine() -> dict[str, str]:
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        **_processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "libc": " ".join(platform.libc_ver()),
    }


def _processor() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    first = {name.strip(): value.strip() for name, _, value in pairs}
    flags = sorted(x for x in first.get("flags", "").split() if _FEATURES.match(x))
    return {"cpu": first.get("model name", ""), "instructions": " ".join(flags)}


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(_VARIABLES) and not name.startswith(_NOT_OF_RESULTS)
    }
