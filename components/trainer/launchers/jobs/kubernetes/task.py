"""`python -m …kubernetes.task KEY FOLDER`: a task of a training, in a pod.

TF_CONFIG is set, except where the job has a single task. With another variable that has
the addresses of all tasks, TF_CONFIG needs only name the pod's own. The output goes to
the pod's log; with a volume also to the attempt's folder, where the launcher reads it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import NoReturn

from strategos.components.errors import UserError, required
from strategos.components.files import temporary
from strategos.components.files.filesystems import is_remote
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.launchers.jobs import remote_task, task
from strategos.components.trainer.launchers.jobs.attempt import Attempt
from strategos.components.trainer.launchers.jobs.kubernetes.manifest import (
    CLUSTER_VARIABLE,
)

_LAST_SECONDS = 5.0


def main(key: str, folder: str) -> None:
    """Does the task that TF_CONFIG names, and exits.

    Args:
      key: The section with the settings of the pods, for messages.
      folder: Folder of the attempt: a URL, or a path on a volume that all pods mount.
    """
    complete(os.environ)
    if is_remote(folder):
        remote_task.main(folder, f"{key}.secrets", "kubeflow")
    attempt = Attempt(Path(folder))
    cluster = task.cluster_or_alone(attempt)
    log = attempt.log_of(attempt.tasks.index(cluster.task))
    copying = subprocess.Popen(
        ["tee", "-a", str(log)], stdin=subprocess.PIPE, start_new_session=True
    )
    pipe = required(copying.stdin)
    for stream in (1, 2):
        os.dup2(pipe.fileno(), stream)
    pipe.close()
    try:
        with temporary.folder() as scratch:
            _do(attempt, cluster, Path(scratch))
    finally:
        sys.stdout.flush()
        for stream in (1, 2):
            os.close(stream)
        copying.wait(_LAST_SECONDS)


def complete(environ: MutableMapping[str, str]) -> None:
    """Puts the addresses of all tasks into TF_CONFIG, if a variable has them.

    Args:
      environ: The environment. The training operator names only the own address in the
        TF_CONFIG of a TFJob that may lose workers.
    """
    if CLUSTER_VARIABLE in environ:
        config = json.loads(environ["TF_CONFIG"])
        config["cluster"] = json.loads(environ[CLUSTER_VARIABLE])
        environ["TF_CONFIG"] = json.dumps(config)


def _do(attempt: Attempt, cluster: ClusterSpec, scratch: Path) -> NoReturn:
    try:
        attempt = task.with_modules(attempt, scratch, "kubeflow")
    except UserError as error:
        task.reject(attempt, cluster, error)
    task.run(attempt)


if __name__ == "__main__":
    main(*sys.argv[1:])
