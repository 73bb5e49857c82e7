"""The custom job of an attempt, for Vertex AI's API v1."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strategos.components.errors import UserError
from strategos.components.trainer.distribution.environment import Task
from strategos.components.trainer.launchers.jobs.attempt import CODE_VARIABLE, Attempt

if TYPE_CHECKING:
    from google.cloud import aiplatform_v1 as api

KEY = "trainer.distribution.vertex"
NAME_LABEL, ATTEMPT_LABEL = "strategos_training", "strategos_attempt"
"""Labels with the name of the training, and with a hash that only the attempt has."""

_TASK = "strategos.components.trainer.launchers.jobs.vertex.task"
# By position in the job, as Vertex AI gives roles, see `distribution/environment.py`.
_POOLS = ("chief", "worker", "ps")
_TPU = "ct"
# A TPU of one host, by the end of its machine type.
_TOPOLOGIES = {"-1t": "1x1", "-4t": "2x2", "-8t": "2x4"}


def custom_job(
    name: str, attempt: Attempt, settings: Mapping[str, Any], code: str
) -> api.CustomJob:
    """The custom job of an attempt. Vertex AI restarts none of its tasks.

    Args:
      name: Name of the training, a label of the job.
      attempt: The attempt.
      settings: `trainer.distribution.vertex` with its values from `vertex`, times in
        seconds.
      code: Fingerprint of the user's code.

    Raises:
      UserError: Vertex AI has no such accelerator.
    """
    from google.cloud import aiplatform_v1 as api

    scheduling: dict[str, Any] = {"disable_retries": True}
    if settings["time_limit"]:
        scheduling["timeout"] = {"seconds": int(settings["time_limit"])}
    return api.CustomJob(
        display_name=f"{name}-{attempt.folder.name}",
        labels={NAME_LABEL: name, ATTEMPT_LABEL: label_of(attempt)},
        job_spec=api.CustomJobSpec(
            worker_pool_specs=list(_pools(attempt, settings, code)),
            scheduling=scheduling,
            service_account=settings["service_account"] or "",
        ),
    )


def label_of(attempt: Attempt) -> str:
    """Value of `ATTEMPT_LABEL`: a hash of the attempt's token, which is secret."""
    return hashlib.sha256(attempt.token.encode()).hexdigest()[:32]


def folder_of(job: api.CustomJob) -> str:
    """The folder of the attempt that a job was created for; "" for another job."""
    pools = job.job_spec.worker_pool_specs
    arguments = pools[0].container_spec.args if pools else ()
    return arguments[-1] if arguments else ""


def replica(task: Task) -> str:
    """The name that Vertex AI's logs have for a task: `workerpool1-0`."""
    return f"workerpool{_POOLS.index(task.type)}-{task.index}"


def topology(machine_type: str) -> str:
    """The topology of the TPU of a machine type; "" for a machine without TPU.

    Raises:
      ValueError: The TPU has several hosts, or is not known.
    """
    if not machine_type.startswith(_TPU):
        return ""
    for end, shape in _TOPOLOGIES.items():
        if machine_type.endswith(end):
            return shape
    raise ValueError(f"not a TPU of one host: {machine_type}")


def _pools(attempt: Attempt, settings: Mapping[str, Any], code: str) -> Any:
    from google.cloud import aiplatform_v1 as api

    counts = Counter(task.type for task in attempt.tasks)
    environment = {CODE_VARIABLE: code}
    if topology(settings["machine_type"]):
        environment["TPU_NAME"] = "local"
    for kind in _POOLS[: 1 + max(map(_POOLS.index, counts))]:
        if not counts[kind]:
            yield api.WorkerPoolSpec()
            continue
        yield api.WorkerPoolSpec(
            machine_spec=_machine(settings),
            replica_count=counts[kind],
            container_spec=api.ContainerSpec(
                image_uri=settings["image"],
                command=["python", "-m", _TASK],
                args=[str(attempt.folder)],
                env=[{"name": k, "value": v} for k, v in environment.items()],
            ),
        )


def _machine(settings: Mapping[str, Any]) -> api.MachineSpec:
    from google.cloud import aiplatform_v1 as api

    kind, accelerator = settings["machine_type"], settings["accelerator"]
    machine = {"machine_type": kind, "tpu_topology": topology(kind)}
    if accelerator:
        kinds: Any = api.AcceleratorType
        known = [each.name for each in kinds][1:]
        if accelerator["type"] not in known:
            raise UserError(
                "Vertex AI has no such accelerator",
                key=f"{KEY}.accelerator.type",
                received=accelerator["type"],
                expected=", ".join(known),
            )
        machine["accelerator_type"] = accelerator["type"]
        machine["accelerator_count"] = accelerator["count"]
    return api.MachineSpec(**machine)
