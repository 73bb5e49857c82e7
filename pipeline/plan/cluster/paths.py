"""Paths of a config's files inside of the steps of a compiled pipeline."""

from __future__ import annotations

from pathlib import Path

from strategos.components.files.filesystems import is_remote
from strategos.pipeline.config.cluster.sections import Kubeflow, Vertex
from strategos.pipeline.config.cluster.types import WORKLOAD
from strategos.pipeline.config.sections import Config


def is_mounted(path: str, section: Kubeflow | Vertex) -> bool:
    """Whether every step sees `path` at the same place, on a volume.

    Args:
      path: An absolute path.
      section: The target's section.
    """
    return any(Path(path).is_relative_to(mount) for mount in section.mounts)


def is_in_image(path: str, section: Kubeflow | Vertex) -> bool:
    """Whether `path` is inside of the folder that the image contains."""
    return not is_remote(path) and Path(path).is_relative_to(section.context)


def in_step(path: str, section: Kubeflow | Vertex) -> str:
    """The path of a local file in a step, e.g. `/workload/model.py` in the image.

    Paths in volumes, and paths outside of the image's context, stay the same.
    """
    if is_mounted(path, section) or not is_in_image(path, section):
        return path
    return str(Path(WORKLOAD) / Path(path).relative_to(section.context))


def moved(config: Config, section: Kubeflow | Vertex) -> Config:
    """Returns `config` with the paths of steps, and with the cluster's root.

    Args:
      config: The effective settings.
      section: The target's section.
    """

    def at(path: str | None) -> str | None:
        return path and in_step(path, section)

    data, complete, gates = config.data, config.data.complete, config.gates
    if complete:
        complete = complete.model_copy(update={"marker": at(complete.marker)})
    if gates:
        skew = gates.skew
        if skew:
            skew = skew.model_copy(update={"serving": at(skew.serving)})
        keys = {
            name: key.model_copy(update={"file": at(key.file)})
            for name, key in gates.keys.items()
        }
        gates = gates.model_copy(update={"skew": skew, "keys": keys})
    predict = config.predict
    if predict:
        predict = predict.model_copy(update={"data": at(predict.data)})
    targets = {"kubeflow": config.kubeflow, "vertex": config.vertex}
    copy = config.model_copy(
        update={
            "data": data.model_copy(
                update={"examples": at(data.examples), "complete": complete}
            ),
            "gates": gates,
            "predict": predict,
            "schema_": config.schema_.model_copy(
                update={"file": at(config.schema_.file)}
            ),
            "trainer": config.trainer.model_copy(
                update={"warm_start": at(config.trainer.warm_start)}
            ),
            "run": config.run.model_copy(update={"root": section.root}),
            **{
                name: each and each.model_copy(update={"context": WORKLOAD})
                for name, each in targets.items()
            },
        }
    )
    copy._path = _yaml(config.path, section)
    return copy


def _yaml(path: Path, section: Kubeflow | Vertex) -> Path:
    """The path of the YAML in steps, which name the modules by its folder."""
    if section.modules and not is_in_image(str(path), section):
        return Path(WORKLOAD, path.name)  # of this machine's folders, steps see none
    return Path(in_step(str(path), section))
