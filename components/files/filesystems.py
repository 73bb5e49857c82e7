"""Remote file systems: which there are, and what makes TensorFlow know them.

TensorFlow knows `gs://` by itself, and `s3://` where tensorflow-io is imported. Each
process that reads or writes a root calls `register` on it before it does.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys

from strategos.components.errors import UserError

_NEEDS = {"gs": None, "s3": "tensorflow_io"}
_HAS_S3 = sys.version_info < (3, 11)  # there is no tensorflow-io for later TensorFlows


def is_remote(uri: str) -> bool:
    """Whether `uri` is a URL (`gs://…`, `s3://…`) and not a path on this machine."""
    return re.match(r"[a-z][a-z0-9+.-]*://", uri) is not None


def missing(uri: str) -> str | None:
    """Why `uri` cannot be read and written here, and what to do; None if it can be."""
    if not is_remote(uri):
        return None
    scheme = uri.partition("://")[0]
    if scheme not in _NEEDS:
        return f"{scheme}:// is not known; use gs://, s3:// or a folder"
    package = _NEEDS[scheme]
    if package is None or (_HAS_S3 and importlib.util.find_spec(package)):
        return None
    if _HAS_S3:
        return f"{scheme}:// needs tensorflow-io: pip install 'strategos[s3]'"
    return (
        f"{scheme}:// needs tensorflow-io, which there is for Python 3.10 (TensorFlow "
        "2.16) alone; use that, gs:// or a folder"
    )


def register(uri: str) -> None:
    """Makes TensorFlow of this process read and write `uri`.

    Raises:
      UserError: It cannot be done here; the message says what to install.
    """
    problem = missing(uri)
    if problem:
        raise UserError(f"{uri}: {problem}.")
    if uri.startswith("s3://"):
        import tensorflow_io  # noqa: F401


def register_with_tfx(uri: str) -> None:
    """Does what `register` does, and gives TFX folders that exist while empty.

    TFX makes the folder of each output beforehand, and takes it from the cache later
    if it still exists. S3 has objects only: a folder is what their names begin with.
    So an empty object stands for the folder, as S3's own console does it.
    """
    register(uri)
    if uri.startswith("s3://"):
        _leave_markers()


@functools.cache
def _leave_markers() -> None:
    from tfx.dsl.io import filesystem_registry
    from tfx.dsl.io.plugins.tensorflow_gfile import TensorflowFilesystem

    class S3(TensorflowFilesystem):
        SUPPORTED_SCHEMES = ["s3://"]

        @staticmethod
        def makedirs(path: str) -> None:
            with TensorflowFilesystem.open(path.rstrip("/") + "/", "w") as marker:
                marker.write("")

        mkdir = makedirs

    registry = filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY
    registry.register(S3, priority=0)


def short(name: str) -> str:
    """A path as its reader would type it here: relative where that is shorter."""
    relative = os.path.relpath(name) if os.path.isabs(name) else name
    return name if relative.startswith("..") else relative
