"""Records what a run is made from, once it is planned."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strategos.components import events, node_ids
from strategos.components.data_files.listing import Listing
from strategos.components.files import digests
from strategos.components.files.filesystems import is_remote
from strategos.components.runtime_parameters import NOTHING
from strategos.components.user_code import fingerprint
from strategos.pipeline.made_from import record, stack
from strategos.pipeline.plan import caching
from strategos.pipeline.root.state import file_hashes, state_folder

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.plan.plan import Plan


def keep(config: Config, data: Listing, plan: Plan) -> None:
    """Writes the record of a run; a warning is all that follows if it cannot.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.
      plan: The run's plan.
    """
    try:
        of_node = code(config)
        files = {k: path for each in of_node.values() for k, path in each.items()}
        made = _made_from(config, data, plan, of_node, files)
        record.write(state_folder(config.run.root), plan.run_id, made, files)
    except OSError as error:
        events.emit(
            "warning",
            message=f"the record of what this run is made from is missing ({error}): "
            "`strategos runs compare` and `reproduce` cannot use the run",
        )


def code(config: Config) -> dict[str, dict[str, Path]]:
    """The files of the user's code, by node and by path relative to the YAML.

    Args:
      config: The effective settings.

    Returns:
      Under "", the modules of `plugins` and the schema.
    """
    folder = Path(config.folder).resolve()
    sections: dict[str, tuple[str, Sequence[str]]] = {
        node_ids.TRANSFORM: (config.transform.module, config.transform.files),
        node_ids.TRAINER: (config.trainer.module, config.trainer.files),
        **{name: (each.module, each.files) for name, each in config.nodes.items()},
    }
    found = {node: _members(folder, *each) for node, each in sections.items()}
    others = [_members(folder, module, ()) for module in config.plugins]
    found[""] = {name: path for files in others for name, path in files.items()}
    if config.schema_.file and not is_remote(config.schema_.file):
        path = Path(config.schema_.file)
        found[""][os.path.relpath(path, folder)] = path
    return found


def _members(folder: Path, module: str, declared: Sequence[str]) -> dict[str, Path]:
    name = module.partition(":")[0]
    members = fingerprint.members(str(folder), name, declared)
    return {os.path.relpath(at, folder): path for at, path in members.items()}


def _made_from(
    config: Config,
    data: Listing,
    plan: Plan,
    of_node: Mapping[str, Mapping[str, Path]],
    files: Mapping[str, Path],
) -> record.MadeFrom:
    settings = config.model_dump(mode="json", by_alias=True)
    settings.pop("notify")  # its addresses may contain passwords
    memo = file_hashes(config.run.root)
    hashed = digests.digests(list(map(str, files.values())), memo)
    pairs = [(span.number, path) for span in data.chosen for path in span.files]
    of_data = digests.digests([path for _, path in pairs], memo)
    return record.MadeFrom(
        settings=settings,
        yaml=str(config.path),
        code=dict(zip(files, hashed, strict=True)),
        used_by={node: sorted(each) for node, each in of_node.items() if node},
        data=[
            record.DataFile(span, path, digest)
            for (span, path), digest in zip(pairs, of_data, strict=True)
        ],
        weights=caching.weights_by_content(
            config.trainer.named_weights or NOTHING, memo
        ),
        stack=stack.of_this_machine(caching.stack_versions()),
        part="part" in plan.facts,
        origins={
            key: origin
            for key, origin in config.origins.items()
            if not key.startswith("notify")
        },
    )
