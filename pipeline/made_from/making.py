"""Records the settings, code, data and stack of a run, once it is planned."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import events, node_ids
from strategos.components.data_files.listing import Listing
from strategos.components.data_files.spans import Span
from strategos.components.files import digests
from strategos.components.files.filesystems import is_remote
from strategos.components.runtime_parameters import NOTHING
from strategos.components.user_code import fingerprint
from strategos.pipeline.made_from import record, stack
from strategos.pipeline.root.state import file_hashes, state_folder

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config


def keep(
    config: Config, data: Listing, run_id: str, weights: str, *, part: bool
) -> None:
    """Writes the record of a run; a warning is all that follows if it cannot.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.
      run_id: The run's id.
      weights: As in `MadeFrom`.
      part: Whether the run has a part of the nodes only.
    """
    memo = file_hashes(config.run.root)
    try:
        of_node = code(config)
        made = with_data(of_settings(config, of_node, memo), data.chosen, memo)
        made = dataclasses.replace(made, weights=weights, part=part)
        record.write(state_folder(config.run.root), run_id, made, _files(of_node))
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
    by_node = {node: _members(folder, *each) for node, each in sections.items()}
    others = [_members(folder, module, ()) for module in config.plugins]
    by_node[""] = {name: path for files in others for name, path in files.items()}
    if config.schema_.file and not is_remote(config.schema_.file):
        path = Path(config.schema_.file)
        by_node[""][os.path.relpath(path, folder)] = path
    return by_node


def _members(folder: Path, module: str, declared: Sequence[str]) -> dict[str, Path]:
    name = module.partition(":")[0]
    members = fingerprint.members(str(folder), name, declared)
    return {os.path.relpath(at, folder): path for at, path in members.items()}


def of_settings(
    config: Config,
    of_node: Mapping[str, Mapping[str, Path]],
    memo: Path | None = None,
) -> record.MadeFrom:
    """The record of a run without its data, its weights and its stack.

    Args:
      config: The settings to record; of a compiled pipeline, with the paths of steps.
      of_node: Result of `code`.
      memo: File that caches digests, see `digests.digests`. Default: none.

    Raises:
      OSError: A file of the user's code cannot be read.
    """
    files = _files(of_node)
    hashed = digests.digests(list(map(str, files.values())), memo)
    values, origins = settings(config)
    return record.MadeFrom(
        settings=values,
        yaml=str(config.path),
        code=dict(zip(files, hashed, strict=True)),
        used_by={node: sorted(each) for node, each in of_node.items() if node},
        data=(),
        weights=NOTHING,
        stack={},
        origins=origins,
    )


def settings(config: Config) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings and their origins without `notify`, which may contain passwords.

    Args:
      config: The effective settings.

    Returns:
      As in `MadeFrom.settings` and `MadeFrom.origins`.
    """
    values = config.model_dump(mode="json", by_alias=True)
    values.pop("notify")
    origins = {k: x for k, x in config.origins.items() if not k.startswith("notify")}
    return values, origins


def _files(of_node: Mapping[str, Mapping[str, Path]]) -> dict[str, Path]:
    return {name: path for each in of_node.values() for name, path in each.items()}


def with_data(
    made: record.MadeFrom, spans: Iterable[Span], memo: Path
) -> record.MadeFrom:
    """Completes a record by the data of a run, and the stack of this machine.

    Args:
      made: The record.
      spans: The spans that the run reads.
      memo: File that caches digests.

    Raises:
      OSError: A data file cannot be read.
    """
    pairs = [(span.number, path) for span in spans for path in span.files]
    hashes = digests.digests([path for _, path in pairs], memo)
    data = [
        record.DataFile(span, path, digest)
        for (span, path), digest in zip(pairs, hashes, strict=True)
    ]
    return dataclasses.replace(made, data=data, stack=stack.of_this_machine())
