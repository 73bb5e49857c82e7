"""Remote file systems: which ones are supported, and registering them.

TensorFlow supports `gs://` itself, and `s3://` once tensorflow-io is imported. Each
process whose TensorFlow reads or writes a URL calls `register` on it first. Where
tensorflow-io is missing, runs use S3 through Arrow instead: see `needs_copies`.

Workers of an engine register what the process has registered that sends them work:
`REGISTERED`. They take credentials and addresses from their own environment.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import queue
import re
import sys
import threading
import uuid
from collections.abc import MutableMapping

from strategos.components.errors import BadInputError, UserError, first_line

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

# What Beam's S3, which is boto3's, reads for the variables of TensorFlow's.
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
    """Why TensorFlow cannot use a path or URL, and what to do; None if it can.

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
    """The variable that has workers register what this process has; may be empty."""
    return {REGISTERED: ",".join(sorted(_registered))} if _registered else {}


def register_in_worker(environ: MutableMapping[str, str] = os.environ) -> None:
    """Registers, in a worker of an engine, what its driver has registered.

    What is not supported here is left out: a worker that ends while it starts can stop
    a job for ever, and the first work on the files reports it.

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


@functools.cache
def check_writable(uri: str, seconds: float = 60.0, *, key: str = "run.root") -> None:
    """Writes a small file below a URL and removes it; a path is not checked.

    By Arrow: without credentials, TensorFlow tries again for a minute or more, and on
    S3 its `makedirs` then returns as if it had succeeded. Then, on Cloud Storage, by
    TensorFlow, which does not know all kinds of Google's credentials.

    Args:
      uri: Path or URL.
      seconds: Time allowed.
      key: The setting that is at fault if nothing can be written, for the message.

    Raises:
      BadInputError: The file could not be written, or not in time.
    """
    if not is_remote(uri):
        return
    ended: queue.Queue[str] = queue.Queue()
    probe = f"{uri.rstrip('/')}/.probe-{uuid.uuid4().hex}"
    threading.Thread(
        target=lambda: ended.put(_write_problem(probe)), daemon=True
    ).start()
    try:
        problem = ended.get(timeout=seconds)
    except queue.Empty:
        problem = f"no answer in {seconds:g} s"
    if problem:
        raise BadInputError(
            f"but nothing can be written there: {problem}",
            key=key,
            received=uri,
            remedy=f"Check the bucket, and the credentials: {credentials(uri)}.",
        )


def _write_problem(path: str) -> str:
    """Why a file cannot be written; "" if it can."""
    problem = _write_problem_of_arrow(path)
    if problem or path.startswith("s3://"):
        return problem
    import tensorflow as tf

    try:
        with tf.io.gfile.GFile(path, "w") as file:
            file.write("probe")
        tf.io.gfile.remove(path)
    except tf.errors.OpError as error:
        return first_line(error.message)
    return ""


def _write_problem_of_arrow(path: str) -> str:
    from strategos.components.files import arrow_files

    try:
        files = arrow_files.connect(path)
        with files.open_output_stream(arrow_files.path_of(path)) as file:
            file.write(b"probe")
        files.delete_file(arrow_files.path_of(path))
    except OSError as error:
        return first_line(str(error))
    return ""


def register_with_tfx(uri: str) -> None:
    """Lets TFX use a path or URL, and see empty folders on S3.

    TFX creates the folder of each output beforehand, and reuses an output from the
    cache only if its folder still exists. S3 has objects only, and a folder is a common
    prefix of their names. So an empty object stands for the folder, as in S3's own
    console.

    Args:
      uri: Path or URL.

    Raises:
      UserError: The file system is not supported here.
    """
    if needs_copies(uri):
        _use_arrow()
        return
    register(uri)
    if uri.startswith("s3://"):
        _leave_markers()


@functools.cache
def _use_arrow() -> None:
    from tfx.dsl.io import filesystem_registry

    from strategos.components.files.tfx_s3 import S3

    filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY.register(S3, priority=0)


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


def remove_markers(uri: str) -> None:
    """Removes the empty objects that stand for folders, where there are some.

    The launcher of Kubeflow Pipelines takes them for files and then cannot copy what is
    in the folders.

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
