"""Removes this machine's files from the specification of a container.

    python runtime.py MOUNTS IMAGE ARGUMENTS-OF-RUNC-CREATE

MOUNTS is a JSON file with the mounts that only containers of IMAGE keep.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

_NAME = "io.kubernetes.cri.image-name"


def main(mounts: str, image: str, *arguments: str) -> None:
    """Changes the specification that `runc create ARGUMENTS` is about to read."""
    bundle = arguments[arguments.index("--bundle") + 1]
    file = Path(bundle, "config.json")
    spec = json.loads(file.read_text())
    if spec.get("annotations", {}).get(_NAME) == image:
        return
    machine = json.loads(Path(mounts).read_text())
    spec["mounts"] = [each for each in spec["mounts"] if each not in machine]
    file.write_text(json.dumps(spec))


if __name__ == "__main__":
    main(*sys.argv[1:])
