"""`python -m …vertex.task URL`: a task of a custom job of Vertex AI, in a container.

Vertex AI names the tasks in CLUSTER_SPEC and TF_CONFIG. The containers share no folder
but the attempt's in Cloud Storage, so the gang meets in copies of the chief's folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from strategos.components.errors import UserError
from strategos.components.files import temporary
from strategos.components.files.places import RemotePath
from strategos.components.trainer.cluster.environment import ClusterSpec
from strategos.components.trainer.hosts import mirror
from strategos.components.trainer.launchers.jobs import task
from strategos.components.trainer.launchers.jobs.attempt import RemoteAttempt
from strategos.components.trainer.launchers.jobs.vertex.custom_job import CODE_VARIABLE
from strategos.components.user_code import fingerprint


def main(url: str) -> NoReturn:
    """Does the task that the environment names, and exits.

    Args:
      url: Folder of the attempt.
    """
    with temporary.folder() as scratch:
        _do(RemoteAttempt(RemotePath(url), Path(scratch)))


def _do(attempt: RemoteAttempt) -> NoReturn:
    attempt.fetch()
    cluster = task.cluster_or_alone(attempt)
    try:
        if cluster.is_chief:  # all have the same image
            reject_other_code(attempt, os.environ)
        _meet(attempt, cluster)
    except UserError as error:
        attempt.put_answer(error=error.to_json())
        sys.exit(f"error: {error}")
    task.run(attempt)


def reject_other_code(attempt: RemoteAttempt, environ: Mapping[str, str]) -> None:
    """Rejects an image whose user code is not what the launcher was started with.

    Args:
      attempt: The attempt.
      environ: The environment, with the fingerprint that the launcher computed.

    Raises:
      UserError: The code differs.
    """
    spec, _ = attempt.request()
    wanted = environ.get(CODE_VARIABLE)
    if wanted and fingerprint.fingerprint(spec.folder, spec.module) != wanted:
        raise UserError(
            f"the module {spec.module} in {spec.folder} of the image differs from that "
            "where the run was started",
            remedy="Build the image again: `strategos image build PIPELINE_YAML "
            "--target vertex --push`.",
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


if __name__ == "__main__":
    main(sys.argv[1])
