"""Files in an object store, S3 or Google Cloud Storage, through Arrow's file systems.

Arrow needs no TensorFlow, so the orchestrator can use it, on both stacks. Paths of
Arrow are URLs without their scheme.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from strategos.components.errors import PassingError, UserError, first_line
from strategos.components.files import filesystems

if TYPE_CHECKING:
    from pyarrow import fs

CHUNK = 1 << 22
"""Bytes of a file that are in memory at once."""

_AT_A_TIME = 8
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_TRIES, _PATIENT_TRIES = 3, 8  # after random pauses, each up to twice the last
# Network, overload, time-outs; not rights, nor what does not exist.
_AWAY = re.compile(
    r"AWS Error (NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE"
    r"|THROTTLING|REQUEST_TIMEOUT)|HTTP status (429|5\d\d)"
    r"|Status\((UNAVAILABLE|DEADLINE_EXCEEDED|INTERNAL|RESOURCE_EXHAUSTED)\b"
)
_LIMIT, _PATIENT_LIMIT = (datetime.timedelta(seconds=each) for each in (5, 30))


def connect(uri: str, *, patient: bool = False) -> fs.FileSystem:
    """Arrow's file system for a URL, from the variables that TensorFlow reads too.

    A process has one for each store, whose connections all calls share.

    Args:
      uri: `s3://…` or `gs://…`.
      patient: Whether a request is repeated while the store does not answer for 20 to
        55 s (S3) or 30 s (Cloud Storage), instead of 2 or 5.
    """
    scheme = uri.partition("://")[0]
    variable = "S3_ENDPOINT" if scheme == "s3" else "STORAGE_EMULATOR_HOST"
    endpoint, region = os.environ.get(variable, ""), os.environ.get("AWS_REGION")
    account = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    # A fork cannot use the connections of its parent.
    return _connected(scheme, endpoint, region, patient, (account, os.getpid()))


@functools.cache
def _connected(
    scheme: str, endpoint: str, region: str | None, patient: bool, _: object
) -> fs.FileSystem:
    from pyarrow import fs

    protocol, _, host = endpoint.rpartition("://")
    if scheme == "gs":
        return fs.GcsFileSystem(
            anonymous=bool(host),  # as all of Google's clients with an emulator
            scheme=protocol or None,
            endpoint_override=host or None,
            retry_time_limit=_PATIENT_LIMIT if patient else _LIMIT,
        )
    tries = _PATIENT_TRIES if patient else _TRIES
    return fs.S3FileSystem(
        region=region,
        scheme=protocol or None,
        endpoint_override=host or None,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=tries),
    )


def path_of(uri: str) -> str:
    """The path of a URL in Arrow's file system."""
    return uri.rstrip("/").partition("://")[2]


def files_below(uri: str, *, patient: bool = False) -> list[fs.FileInfo]:
    """Lists all objects below a URL; [] if there are none.

    Args:
      uri: `s3://…` or `gs://…`.
      patient: As for `connect`.
    """
    from pyarrow import fs

    below = fs.FileSelector(path_of(uri), allow_not_found=True, recursive=True)
    found = connect(uri, patient=patient).get_file_info(below)
    return [each for each in found if each.type == fs.FileType.File]


def download(uri: str, target: str) -> None:
    """Copies an object to a file, or everything below a URL into a folder.

    Args:
      uri: `s3://…` or `gs://…`.
      target: A local file or folder, created with the folders above it.

    Raises:
      FileNotFoundError: There are no objects.
    """
    from pyarrow import fs

    files, path = connect(uri, patient=True), path_of(uri)
    found = [files.get_file_info(path)]
    if found[0].type != fs.FileType.File:
        found = files_below(uri, patient=True)
    if not found:
        raise FileNotFoundError("there are no objects")

    def fetch(info: fs.FileInfo) -> None:
        file = Path(target + info.path[len(path) :])
        file.parent.mkdir(parents=True, exist_ok=True)
        with (
            files.open_input_stream(info.path, compression=None) as source,
            file.open("wb") as out,
        ):
            while chunk := source.read(CHUNK):
                out.write(chunk)

    each(fetch, found)


def upload(folder: str, uri: str, *, last: str = "") -> None:
    """Copies all files below a folder to a URL; links to folders are not followed.

    Args:
      folder: A local folder.
      uri: `s3://…` or `gs://…`.
      last: Name of the file that is copied after all others.
    """
    if os.path.islink(folder):
        return
    uri = uri.rstrip("/")
    found = [
        os.path.relpath(os.path.join(parent, name), folder)
        for parent, _, names in os.walk(folder)
        for name in names
    ]

    def send(name: str) -> None:
        upload_file(os.path.join(folder, name), f"{uri}/{name}")

    each(send, [name for name in found if name != last])
    if last:
        send(last)


def each(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Calls `work` for each item, some at a time: most of the time is latency.

    Args:
      work: Opens an object; safe to call in several threads.
      items: Its arguments.

    Returns:
      The results, in the order of `items`.

    Raises:
      Exception: The one that `work` raised for the earliest item; later ones may not
        have begun.
    """
    pool = futures.ThreadPoolExecutor(_AT_A_TIME)
    try:
        return list(pool.map(work, items))
    finally:
        pool.shutdown(cancel_futures=True)


def upload_file(file: str | Path, uri: str) -> None:
    """Copies a local file to an object, which appears as a whole.

    Args:
      file: The local file.
      uri: `s3://…` or `gs://…`.
    """
    files, path = connect(uri, patient=True), path_of(uri)
    with (
        open(file, "rb") as source,
        # Arrow's default compresses what is named `.gz`, and decompresses it again.
        files.open_output_stream(path, compression=None) as out,
    ):
        while chunk := source.read(CHUNK):
            out.write(chunk)


def remove(uri: str) -> None:
    """Removes all objects below a URL, if there are any.

    Args:
      uri: `s3://…` or `gs://…`.
    """
    try:
        connect(uri, patient=True).delete_dir(path_of(uri))
    except FileNotFoundError:
        pass
    except OSError:  # newer Arrows raise it for a missing folder on Cloud Storage
        if files_below(uri, patient=True):
            raise


def is_away(error: OSError) -> bool:
    """Whether an error of Arrow says that the object store does not answer for now.

    Args:
      error: Of any call; Arrow's errors have a text only.
    """
    return bool(_AWAY.search(str(error)))


@contextlib.contextmanager
def problems_of(uri: str, key: str, done: str) -> Iterator[None]:
    """Converts errors of Arrow inside the block to an error for users.

    Args:
      uri: `s3://…` or `gs://…`.
      key: The setting that names it.
      done: What is tried, such as "read".

    Raises:
      UserError: The block failed; a `PassingError` if the store `is_away`.
    """
    try:
        yield
    except OSError as error:
        raise (PassingError if is_away(error) else UserError)(
            f"{uri}: nothing can be {done} there: {first_line(str(error))}",
            key=key,
            remedy="Check the bucket, and the credentials: "
            f"{filesystems.credentials(uri)}.",
        ) from error
