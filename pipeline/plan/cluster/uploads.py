"""Uploads the user's modules to where the steps of a compiled pipeline find them.

Each node that runs a module gets an archive of that module alone, so a change of the
model's module leaves the other nodes' containers as they are.
"""

from __future__ import annotations

from strategos.components import node_ids
from strategos.components.errors import UserError
from strategos.components.user_code import archive
from strategos.pipeline.config.nodes import order
from strategos.pipeline.config.nodes.sections import Node
from strategos.pipeline.config.sections import Config, Transform
from strategos.pipeline.config.trainer import Trainer


def upload(config: Config, target: str) -> dict[str, str]:
    """Uploads the modules if the target's section names a folder for them.

    Args:
      config: The effective settings, already checked for the target.
      target: `kubeflow` or `vertex`.

    Returns:
      The URL of its archive for each node that runs a module; {} without `modules`.

    Raises:
      BadInputError: The object store does not answer, or rejects that.
    """
    url = getattr(config, target).modules
    if not url:
        return {}
    sections: dict[str, Transform | Trainer | Node] = {
        node_ids.TRANSFORM: config.transform,
        node_ids.TRAINER: config.trainer,
        **config.nodes,
    }
    key, folder = f"{target}.modules", str(config.folder)
    try:
        return {
            node: archive.upload(folder, each.module, url, key, each.files)
            for node, each in sections.items()
            if node not in order.replaced(config.nodes)
        }
    except UserError as error:
        raise config.problem(
            key, error.message, received=error.received, remedy=error.remedy
        ) from None
