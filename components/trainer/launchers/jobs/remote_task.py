"""A task of a job on machines that share only the attempt's folder in an object store.

The gang meets in copies of the chief's folder. Inputs that TensorFlow
opens are downloaded first, to the same folder on each machine: a parameter server's
coordinator names the files that its workers read. The launcher reads the task's output
from the batch system's log.
"""

from __future__ import annotations

import functools
import hashlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from strategos.components import worker_process
from strategos.components.errors import UserError, required
from strategos.components.files import (
    commit,
    filesystems,
    object_stores,
    storage,
    temporary,
)
from strategos.components.files.places import RemotePath
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.hosts import mirror
from strategos.components.trainer.launchers.jobs import task
from strategos.components.trainer.launchers.jobs.attempt import (
    CODE_VARIABLE,
    REJECTED,
    RemoteAttempt,
)
from strategos.components.user_code import fingerprint

_STORE_SECONDS = 60.0
_PAUSE_SECONDS = 5.0
_READ_SECONDS = 6.0  # for the launcher: the log may be deleted with the container


def main(url: str, key: str, target: str) -> NoReturn:
    """Does the task that the environment names, and exits.

    Args:
      url: Folder of the attempt.
      key: The setting that gives tasks their credentials, for messages.
      target: Value of `strategos image build --target` for the image of the task.
    """
    os.environ.update(worker_process.TENSORFLOW)  # `gs://` is tried by it
    # Without a handler, the first process of a container ignores SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: worker_process.leave(1))
    _await_store(url, key)
    try:
        with temporary.folder() as scratch:
            attempt = RemoteAttempt(RemotePath(url), Path(scratch))
            name = hashlib.sha256(attempt.token.encode()).hexdigest()[:12]
            with temporary.shared(name) as inputs:
                _do(attempt, target, inputs)
    except SystemExit as end:
        worker_process.leave(end.code)


def _await_store(url: str, key: str) -> None:
    """Waits a little for the object store; exits if it cannot be written.

    The launcher then finds no answer in the folder, but a reason in the log.
    """
    until = time.monotonic() + _STORE_SECONDS
    while True:
        try:
            object_stores.check_writable(url, key=key)
            return
        except UserError as error:
            if time.monotonic() > until:
                reason = f"{error.headline}. {error.remedy}"
                print(f"error: {REJECTED}: {reason}", file=sys.stderr, flush=True)
                time.sleep(_READ_SECONDS)
                worker_process.leave(1)  # a thread may still try to write
            print(f"waiting for {url}: {error.headline}", file=sys.stderr, flush=True)
        time.sleep(_PAUSE_SECONDS)


def _do(attempt: RemoteAttempt, target: str, inputs: str) -> NoReturn:
    cluster = task.cluster_or_alone(attempt)
    try:
        attempt = task.with_modules(attempt, required(attempt.scratch), target)
        if cluster.is_chief and not attempt.modules:  # all have the same image
            reject_other_code(attempt, os.environ, target)
        fetch(attempt, inputs)
        _meet(attempt, cluster)
    except UserError as error:
        task.reject(attempt, cluster, error)
    task.run(attempt)


def fetch(attempt: RemoteAttempt, inputs: str) -> None:
    """Copies the request and the inputs.

    Exits if the store does not answer: another attempt may find it again.

    Args:
      attempt: The attempt.
      inputs: Folder that gets the inputs.

    Raises:
      UserError: An input is missing.
    """
    try:
        attempt.fetch(functools.partial(_fetched, folder=inputs))
    except OSError as error:
        sys.exit(f"error: the training's files cannot be copied: {error}")


def _fetched(url: str, folder: str) -> str:
    """Downloads an input, unless it is on this machine; returns where it is."""
    if not filesystems.is_remote(url):
        return url
    target = Path(folder, object_stores.path_of(url))
    if not target.exists():  # tasks of one machine share the folder
        print(f"downloading {url}", file=sys.stderr, flush=True)
        try:
            with commit.aside(target, shared=True) as aside:
                storage.get(url, str(aside))
        except FileNotFoundError:
            raise UserError(
                f"{url}, which the training needs, does not exist",
                remedy="Run again: the pipeline's own files are copied once more.",
            ) from None
    return str(target)


def reject_other_code(
    attempt: RemoteAttempt, environ: Mapping[str, str], target: str
) -> None:
    """Rejects an image with user code other than the launcher's.

    Args:
      attempt: The attempt.
      environ: The environment, with the fingerprint that the launcher computed.
      target: See `main`.

    Raises:
      UserError: The code differs, or is missing.
    """
    spec, _ = attempt.request()
    wanted = environ.get(CODE_VARIABLE)
    fingerprint_here = fingerprint.fingerprint(
        spec.folder, spec.module, files=spec.files
    )
    if wanted and fingerprint_here != wanted:
        raise UserError(
            f"the module {spec.module} in {spec.folder} of the image differs from that "
            "where the run was started",
            remedy="Build the image again: `strategos image build PIPELINE_YAML "
            f"--target {target} --push`.",
        )


def _meet(attempt: RemoteAttempt, cluster: ClusterSpec) -> None:
    if len(cluster.tasks) == 1:
        return
    if not cluster.is_chief:
        mirror.keep_copy(attempt.gang, cluster, attempt.token)
        return
    try:
        mirror.serve(attempt.gang, cluster, attempt.token)
    except OSError as error:
        port = mirror.port_of(cluster)
        raise UserError(
            f"port {port} of the chief's container cannot be used: {error.strerror}"
        ) from None
