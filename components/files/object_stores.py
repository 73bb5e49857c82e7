"""Connections to object stores, S3 and Google Cloud Storage, and their errors.

Arrow's file systems need no TensorFlow and work on both stacks. Their paths are URLs
without the scheme.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import functools
import os
import queue
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import TypeVar

from strategos.components.errors import (
    BadInputError,
    PassingError,
    UserError,
    first_line,
)
from strategos.components.files import filesystems
from strategos.components.slow_imports import fs

_AT_A_TIME = 8
_OF_A_THREAD = 64  # items at once: to hand over one takes as long as to open a file
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_TRIES, _PATIENT_TRIES = 3, 8  # after random pauses, each up to twice the last
# Network, overload, time-outs; not missing rights or objects.
_AWAY = re.compile(
    r"AWS Error (NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE"
    r"|THROTTLING|REQUEST_TIMEOUT)|HTTP status (429|5\d\d)"
    r"|Status\((UNAVAILABLE|DEADLINE_EXCEEDED|INTERNAL|RESOURCE_EXHAUSTED)\b"
)
_LIMIT, _PATIENT_LIMIT = (datetime.timedelta(seconds=each) for each in (5, 30))


def connect(uri: str, *, patient: bool = False) -> fs.FileSystem:
    """Arrow's file system for a URL, from the variables that other clients read too.

    A process has one for each store; all calls share its connections.

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


@functools.cache
def check_writable(uri: str, seconds: float = 60.0, *, key: str = "run.root") -> None:
    """Writes a small file below a URL and removes it; a path is not checked.

    Args:
      uri: Path or URL.
      seconds: Time allowed.
      key: The setting to name in the message.

    Raises:
      BadInputError: The file could not be written, or not in time.
    """
    if not filesystems.is_remote(uri):
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
            f"nothing can be written there: {problem}",
            key=key,
            received=uri,
            remedy=_check(uri),
        )


def _write_problem(path: str) -> str:
    """Why a file cannot be written; "" if it can."""
    files = connect(path)
    try:
        with files.open_output_stream(path_of(path)) as file:
            file.write(b"probe")
        files.delete_file(path_of(path))
    except OSError as error:
        return first_line(str(error))
    return ""


def is_away(error: OSError) -> bool:
    """Whether an error of Arrow is temporary: network, overload or time-out.

    Args:
      error: Error of any call; Arrow's errors have a text only.
    """
    return bool(_AWAY.search(str(error)))


def reason(error: OSError) -> str:
    """The text of an error as Arrow raised it, before `errors_of` filled it in.

    Args:
      error: Error of any call.
    """
    return first_line(str(error.__cause__ or error))


@contextlib.contextmanager
def errors_of(uri: str) -> Iterator[None]:
    """Fills in the errors of Arrow inside the block: they have a text only.

    Args:
      uri: `s3://…` or `gs://…`.

    Raises:
      OSError: The block failed: `strerror` has the text and a remedy.
    """
    try:
        yield
    except FileNotFoundError as error:
        if error.filename:  # a local file's, or filled in
            raise
        missing = "object not found"
        raise FileNotFoundError(errno.ENOENT, missing, uri) from error
    except OSError as error:
        if error.errno:
            raise
        text = f"{first_line(str(error))} (c{_check(uri)[1:-1]})"
        raise OSError(errno.EIO, text, uri) from error


@contextlib.contextmanager
def problems_of(uri: str, key: str, done: str) -> Iterator[None]:
    """Converts errors of an object store inside the block to an error for users.

    Args:
      uri: `s3://…` or `gs://…`; the errors of a path stay as they are.
      key: The setting that names the URL.
      done: The operation, as a participle: "read", "written" or "removed".

    Raises:
      UserError: The block failed; a `PassingError` if the store `is_away`.
    """
    try:
        yield
    except OSError as error:
        if not filesystems.is_remote(uri):
            raise
        raise (PassingError if is_away(error) else UserError)(
            f"{uri}: nothing can be {done} there: {reason(error)}",
            key=key,
            remedy=_check(uri),
        ) from error


def _check(uri: str) -> str:
    return f"Check the bucket, and the credentials: {filesystems.credentials(uri)}."


def each(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Calls `work` for each item, in several threads, because of the latency.

    Args:
      work: Opens an object; must be thread-safe.
      items: The argument of each call.

    Returns:
      The results, in the order of `items`.

    Raises:
      Exception: Any error of `work`, for the earliest item that failed; the work on
        later items may not have begun.
    """
    waiting = list(items)
    size = min(max(len(waiting) // (4 * _AT_A_TIME), 1), _OF_A_THREAD)
    chunks = [waiting[at : at + size] for at in range(0, len(waiting), size)]
    pool = futures.ThreadPoolExecutor(_AT_A_TIME)
    try:
        done = pool.map(lambda chunk: [work(item) for item in chunk], chunks)
        return [result for results in done for result in results]
    finally:
        pool.shutdown(cancel_futures=True)
