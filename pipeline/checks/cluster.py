"""Checks a pipeline against the limits of its cluster, before it is compiled.

All checks run on this machine, without a request to the cluster. E.g. a push target in
a container's own folder is rejected, because it is deleted with the container.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from strategos.components import node_ids
from strategos.components.data_files.listing import Listing
from strategos.components.errors import BadInputError, Place, UserError, required
from strategos.components.files.filesystems import is_remote
from strategos.components.push_targets import targets
from strategos.components.trainer.launchers import LAUNCHERS
from strategos.components.wording import listed
from strategos.pipeline.checks import engine, files, folders, nodes
from strategos.pipeline.config.cluster.sections import Kubeflow, Vertex
from strategos.pipeline.config.cluster.types import WORKLOAD
from strategos.pipeline.config.sections import Config
from strategos.pipeline.plan.cluster import paths
from strategos.pipeline.plan.cluster.resolve import GANGS

_FIXES = {
    "kubeflow": "Move it below `kubeflow.context`, or name a URL such as s3://BUCKET/… "
    "or a folder of `kubeflow.volumes`.",
    "vertex": "Move it below `vertex.context`, or name a URL such as gs://BUCKET/… or "
    "a folder below /gcs/BUCKET.",
}
_PUSH_FIXES = {
    "kubeflow": "Name a folder of `kubeflow.volumes`, or a URL such as "
    "s3://BUCKET/FOLDER.",
    "vertex": "Name a URL such as gs://BUCKET/FOLDER.",
}
_WHY = {
    "vertex": "the containers of a custom job cannot see the files of a step of KFP"
}
_GANG_FIXES = {
    "kubeflow": "Use `launcher: kubernetes`, or `mirrored` on a node with several "
    "GPUs.",
    "vertex": "Use `launcher: vertex`, or `mirrored` on a machine with several GPUs.",
}
_PUSH_TO = {"kubeflow": ("s3", "gs"), "vertex": ("gs",)}


def check(config: Config, data: Listing, target: str) -> list[UserError]:
    """Returns all problems of `config` with a target.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names on this machine.
      target: `kubeflow` or `vertex`.
    """
    section = getattr(config, target)
    if section is None:
        more = ", project: …, root: gs://…" if target == "vertex" else ""
        return [
            BadInputError(
                "the required section is missing",
                key=target,
                place=Place(str(config.path)),
                remedy=f"Add `{target}: {{image: …{more}}}`, in the file or in an "
                "overlay.",
            )
        ]
    return [
        *files.check(config, data, seen=lambda path: paths.is_mounted(path, section)),
        *nodes.check(config),
        *engine.check(config, target=target),
        *_name_problems(config),
        *_path_problems(config, section, target),
        *_pusher_problems(config, section, target),
        *_distribution_problems(config, target),
        *_training_job_problems(config, section),
        *_accelerator_problems(config, section, target),
    ]


def check_pod(config: Config, data: Listing) -> list[UserError]:
    """Returns all problems of `config` with a pod that runs the whole pipeline.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names on this machine.
    """
    section = config.kubeflow
    if section is None:
        return [
            config.problem(
                "kubeflow",
                "is missing, and names the image of the pods",
                remedy="Add `kubeflow: {image: REGISTRY/NAME:TAG}`.",
            )
        ]
    return [
        *files.check(config, data, seen=lambda path: paths.is_mounted(path, section)),
        *folders.root_problems(config),
        *nodes.check(config),
        *engine.check(config, target=engine.POD),
        *_pod_problems(config, section),
        *_unseen_files(config, section, "kubeflow"),
    ]


def pod_notes(config: Config) -> list[UserError]:
    """Returns the push targets that a pod cannot write, or loses at its end.

    As no pushed model remains, each scheduled check would train again.

    Args:
      config: The effective settings, after `check_pod`.
    """
    return list(_pusher_problems(config, required(config.kubeflow), "kubeflow"))


def _pod_problems(config: Config, section: Kubeflow) -> Iterator[UserError]:
    path, root = str(config.path), config.run.root
    if not (paths.is_in_image(path, section) or paths.is_mounted(path, section)):
        yield config.problem(
            "kubeflow.context",
            "the image does not contain the pipeline's YAML",
            received=section.context,
            expected=f"a folder that contains {path}",
        )
    if not (is_remote(root) or paths.is_mounted(root, section)):
        yield config.problem(
            "run.root",
            "a pod loses this folder at its end",
            received=root,
            expected="`s3://…` or `gs://…` with `run.metadata` on a server; or a path "
            "in one of `kubeflow.volumes`",
        )


def _name_problems(config: Config) -> Iterator[UserError]:
    if not re.fullmatch("[a-z]([a-z0-9-]{0,50}[a-z0-9])?", config.name):
        yield config.problem(
            "name",
            "pods are named after it, and the cluster makes their names longer",
            received=config.name,
            expected="at most 52 lower-case letters, digits and `-`, with a letter or "
            "a digit at the end",
            remedy="Set `name` to another one.",
        )


def _path_problems(
    config: Config, section: Kubeflow | Vertex, target: str
) -> Iterator[UserError]:
    """Yields a problem for each file or folder that no step would see."""
    if not (section.modules or paths.is_in_image(str(config.folder), section)):
        yield config.problem(
            f"{target}.context",
            f"{config.folder}, the folder of the YAML and its modules, is not in it",
            received=section.context,
            remedy=f"Name a folder above it, or set `{target}.modules`.",
        )
    elif config.plugins and section.modules:
        yield config.problem(
            "plugins",
            f"`{target}.modules` does not upload modules of plug-ins",
            received=listed(config.plugins),
            remedy=f"Remove `{target}.modules`, so that steps take all modules from "
            "the image; or make a package of these and install it there.",
        )
    yield from _unseen_files(config, section, target)


def _unseen_files(
    config: Config, section: Kubeflow | Vertex, target: str
) -> Iterator[UserError]:
    complete = config.data.complete
    named = {
        "data.examples": config.data.examples,
        "data.complete.marker": complete.marker if complete else None,
        **config.other_data,
        "schema.file": config.schema_.file,
        "trainer.warm_start": config.trainer.named_weights,
    }
    for key, path in named.items():
        if not path or is_remote(path):  # of remote ones `files` knows which
            continue
        if not (paths.is_in_image(path, section) or paths.is_mounted(path, section)):
            yield config.problem(
                key,
                f"no step can see it: the image contains {section.context}",
                received=path,
                remedy=_FIXES[target],
            )
    dump = config.trainer.debug.dump
    if dump and not paths.is_mounted(dump, section):
        yield config.problem(
            "trainer.debug.dump",
            "the folder is deleted with the container of the step",
            received=dump,
            remedy="Name a folder on a volume, or look for the fault on this machine.",
        )
    query = config.data.query
    file = query.file if query else ""
    asks = not paths.is_in_image(config.data.examples, section)
    if file and asks and not paths.is_mounted(file, section):
        yield config.problem(
            "data.query.database",
            "the step that asks for new spans cannot see the file",
            received=file,
            remedy=f"Put it on a volume of `{target}`, or use a server.",
        )


def _pusher_problems(
    config: Config, section: Kubeflow | Vertex, target: str
) -> Iterator[UserError]:
    for key, to in config.pusher.folders.items() if config.pusher else ():
        yield from _target_problems(config, section, target, key, to)
    if config.predict:
        to = config.predict.to
        yield from _target_problems(config, section, target, "predict.to", to)


def _target_problems(
    config: Config, section: Kubeflow | Vertex, target: str, key: str, to: str
) -> Iterator[UserError]:
    scheme = targets.scheme(to) if is_remote(to) else ""
    is_plugin = key != "predict.to" and scheme in targets.TARGETS
    is_plugin = is_plugin and scheme not in targets.TARGETS.own
    if scheme and not is_plugin and scheme not in _PUSH_TO[target]:
        allowed = " or ".join(f"{each}://…" for each in _PUSH_TO[target])
        yield config.problem(
            key, "steps cannot write there", received=to, expected=allowed
        )
    elif not scheme and not paths.is_mounted(to, section):
        inside = paths.in_step(to, section)
        where = inside if inside.startswith(WORKLOAD) else to
        yield config.problem(
            key,
            f"it is {where} inside a container, and deleted with the container",
            received=to,
            remedy=_PUSH_FIXES[target],
        )


def _distribution_problems(config: Config, target: str) -> Iterator[UserError]:
    distribution = config.trainer.distribution
    if target not in distribution.launched_by.services:
        allowed = (name for name in LAUNCHERS.own if target in LAUNCHERS[name].services)
        yield config.problem(
            "trainer.distribution.launcher",
            _WHY.get(
                distribution.launcher,
                "no other host joins the step of a compiled pipeline",
            ),
            received=distribution.launcher,
            expected=" or ".join(allowed),
        )
    elif distribution.strategy in GANGS and distribution.launcher == "local":
        yield config.problem(
            "trainer.distribution.strategy",
            "all its processes would run in the one container of the step",
            received=distribution.strategy,
            expected="for `strategos compile` and `launcher: local`: auto, one_device, "
            "mirrored, central_storage or tpu",
            remedy=_GANG_FIXES[target],
        )


def _training_job_problems(
    config: Config, section: Kubeflow | Vertex
) -> Iterator[UserError]:
    """Yields a problem if the Trainer's step and its pods share no files."""
    pods = config.trainer.distribution.pods
    if pods is None or isinstance(section, Vertex):
        return
    key = f"trainer.distribution.{config.trainer.distribution.launcher}"
    if not pods.folder:
        yield config.problem(
            f"{key}.folder",
            "is missing: the files of a step are in its own container",
            remedy="Name a URL such as s3://BUCKET/FOLDER, or a folder on one of "
            f"`{key}.volumes`.",
        )
    elif is_remote(pods.folder):
        return
    for volume in pods.volumes:
        if volume not in section.volumes:
            yield config.problem(
                f"{key}.volumes",
                "the step of the Trainer does not mount this volume at the same path",
                received=f"{volume.claim} at {volume.path}",
                remedy="Add the volume to `kubeflow.volumes`.",
            )


def _accelerator_problems(
    config: Config, section: Kubeflow | Vertex, target: str
) -> Iterator[UserError]:
    """Yields a problem if the Trainer's strategy does not fit its accelerator."""
    distribution = config.trainer.distribution
    strategy, devices = distribution.strategy, distribution.devices
    if distribution.launcher != "local":  # the step itself does not train
        return
    accelerator = section.step(node_ids.TRAINER).accelerator
    own = section.steps.get(node_ids.TRAINER)
    name = node_ids.TRAINER if own and own.accelerator else "default"
    key = f"{target}.steps.{name}.accelerator"
    is_tpu = accelerator is not None and "tpu" in accelerator.type.lower()
    if strategy == "tpu" and not is_tpu and not distribution.tpu.name:
        yield config.problem(
            "trainer.distribution.strategy",
            "the step of the Trainer has no TPU",
            received=strategy,
            remedy=f"Set `{target}.steps.Trainer.accelerator` to a TPU, or "
            "`trainer.distribution.tpu.name`.",
        )
    if accelerator is None:
        return
    received = f"{accelerator.count} {accelerator.type}"
    if is_tpu and strategy not in ("tpu", "auto"):
        yield config.problem(
            key,
            f"`trainer.distribution.strategy: {strategy}` uses no TPU",
            received=received,
            remedy="Use `strategy: tpu`, or remove the accelerator.",
        )
    elif strategy == "one_device" and accelerator.count > 1:
        yield config.problem(
            key,
            "`trainer.distribution.strategy: one_device` uses one of them",
            received=received,
            remedy="Set `count: 1`, or use `strategy: mirrored`.",
        )
    elif not is_tpu and devices and devices > accelerator.count:
        yield config.problem(
            "trainer.distribution.devices",
            f"the step of the Trainer has {received}",
            received=str(devices),
            remedy=f"Use fewer, or raise `{key}.count`.",
        )
