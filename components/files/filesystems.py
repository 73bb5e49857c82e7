"""Remote file systems: their support in TensorFlow, and their registration.

TensorFlow supports `gs://` itself, and `s3://` once tensorflow-io is imported. Call
`register` before TensorFlow reads or writes a URL. Where tensorflow-io is missing, runs
use S3 through Arrow instead: see `needs_copies`.

Workers of an engine register the same file systems as their driver, which names them in
the variable `REGISTERED`. Credentials and addresses come from the worker's environment.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import MutableMapping

from strategos.components.errors import UserError

_NEEDS = {"gs": None, "s3": "tensorflow_io"}
_CREDENTIALS = {
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`",
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION; S3_ENDPOINT for a "
    "server other than Amazon's",
}
# The last tensorflow-io, 0.37.1, does not load in TensorFlow 2.21: 20 symbols that it
# needs are gone, such as `tsl::mutex::unlock`.
_HAS_S3 = sys.version_info < (3, 11)

REGISTERED = "STRATEGOS_FILE_SYSTEMS"
"""Names the schemes that a worker of an engine registers, separated by commas."""

# TensorFlow's variables for S3, and the variables that Beam's client, boto3, reads.
_OF_BOTO3 = {"S3_ENDPOINT": "AWS_ENDPOINT_URL_S3", "AWS_REGION": "AWS_DEFAULT_REGION"}
_registered: set[str] = set()


def is_remote(uri: str) -> bool:
    """Whether `uri` is a URL (`gs://…`, `s3://…`) and not a path on this machine."""
    return re.match(r"[a-z][a-z0-9+.-]*://", uri) is not None


def unknown(uri: str) -> str | None:
    """Why a path or URL is of no supported kind; None if it is.

    Args:
      uri: Path or URL.
    """
    scheme = uri.partition("://")[0]
    if not is_remote(uri) or scheme in _NEEDS:
        return None
    return f"{scheme}:// is not known; use gs://, s3:// or a folder"


def credentials(uri: str) -> str:
    """Where programs find the credentials for a remote URL, for messages.

    Args:
      uri: `gs://…` or `s3://…`.
    """
    return _CREDENTIALS[uri.partition("://")[0]]


def missing(uri: str) -> str | None:
    """Why TensorFlow cannot use a path or URL, with a remedy; None if it can.

    Args:
      uri: Path or URL.
    """
    if not is_remote(uri) or unknown(uri):
        return unknown(uri)
    scheme = uri.partition("://")[0]
    package = _NEEDS[scheme]
    if package is None or (_HAS_S3 and importlib.util.find_spec(package)):
        return None
    if _HAS_S3:
        return f"{scheme}:// needs tensorflow-io: pip install 'strategos[s3]'"
    return (
        f"{scheme}:// needs tensorflow-io, whose last version, 0.37.1, loads in "
        "TensorFlow 2.16 (Python 3.10) but not in 2.21 (undefined symbols); use that, "
        "gs:// or a folder"
    )


def missing_in_workers(uri: str) -> str | None:
    """Why workers of an engine cannot use a path or URL; None if they can.

    Args:
      uri: Path or URL of a root.
    """
    if uri.startswith("s3://") and not missing(uri) and not _has_boto3():
        return "s3:// needs boto3 for Beam: pip install 'strategos[s3]'"
    return missing(uri)


def _has_boto3() -> bool:
    return importlib.util.find_spec("boto3") is not None


def needs_copies(uri: str) -> bool:
    """Whether programs work on local copies of files, as TensorFlow cannot open them.

    Args:
      uri: Path or URL.
    """
    return uri.startswith("s3://") and missing(uri) is not None


def register(uri: str) -> None:
    """Makes TensorFlow in this process support a path or URL.

    Args:
      uri: Path or URL.

    Raises:
      UserError: The file system is not supported here; the message has the remedy.
    """
    problem = missing(uri)
    if problem:
        raise UserError(f"{uri}: {problem}.")
    if uri.startswith("s3://"):
        import tensorflow_io  # noqa: F401

        _registered.add("s3")
        _set_up_boto3(os.environ)


def registered() -> dict[str, str]:
    """The variable that names this process's registered schemes for workers, or {}."""
    return {REGISTERED: ",".join(sorted(_registered))} if _registered else {}


def register_in_worker(environ: MutableMapping[str, str] = os.environ) -> None:
    """Registers, in a worker of an engine, the file systems of its driver.

    Unsupported file systems are skipped: a worker that ends while it starts can stop a
    job for ever, and the first access to a file reports the problem.

    Args:
      environ: The environment, by default this process's.
    """
    for scheme in filter(None, environ.get(REGISTERED, "").split(",")):
        with contextlib.suppress(UserError):
            register(f"{scheme}://")


def _set_up_boto3(environ: MutableMapping[str, str]) -> None:
    """Lets Beam's pipelines use the same server as TensorFlow."""
    for ours, theirs in _OF_BOTO3.items():
        if ours in environ:
            environ.setdefault(theirs, environ[ours])


def remove_markers(uri: str) -> None:
    """Removes empty objects that stand for folders, if any.

    The launcher of Kubeflow Pipelines takes them for files and then cannot copy the
    content of the folders.

    Args:
      uri: URL of a folder, of a file system that is registered.
    """
    import tensorflow as tf

    for folder, _, _ in list(tf.io.gfile.walk(uri)):
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(folder.rstrip("/") + "/")


def short(name: str) -> str:
    """A path as a user would type it here: relative if that is shorter."""
    relative = os.path.relpath(name) if os.path.isabs(name) else name
    return name if relative.startswith("..") else relative
