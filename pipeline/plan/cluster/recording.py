"""The record of a run that the first step of a compiled pipeline writes.

The compiler knows the settings and the digests of the code. The step adds the values of
the run's parameters, the data, and the stack of its image; and, beside the record, the
code: from the image, or from the archives that the other steps download. So
`strategos runs compare` shows which lines changed, and `strategos reproduce` makes the
model again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import node_ids, runtime_parameters
from strategos.components.errors import UserError
from strategos.components.user_code import archive
from strategos.pipeline.made_from import making, record
from strategos.pipeline.made_from.compared import changes, leaves
from strategos.pipeline.made_from.record import MadeFrom

if TYPE_CHECKING:
    from strategos.components.data_files.listing import Listing

Json = dict[str, Any]

_PARAMETER = "a parameter of the run"
LARGEST = 1 << 20  # bytes of a file: each run stores its files anew


def of_run(compiled: Mapping[str, Any], parameters: Mapping[str, Any]) -> MadeFrom:
    """The record of a run without its data and its stack.

    Args:
      compiled: Of `record.to_json`, with the settings of the compiler.
      parameters: The values of the run's parameters, by name.
    """
    made = record.parsed(compiled, "")
    settings = runtime_parameters.applied(made.settings, parameters)
    before, after = (dict(leaves(each)) for each in (made.settings, settings))
    changed = {each.name: _PARAMETER for each in changes(before, after)}
    origins = {**made.origins, **changed}
    return dataclasses.replace(made, settings=settings, origins=origins)


def settings(made: MadeFrom) -> str:
    """The settings as JSON, for the steps that write reports."""
    shown = {"settings": made.settings, "origins": made.origins, "yaml": made.yaml}
    return json.dumps(shown, sort_keys=True)


def complete(made: MadeFrom, data: Listing, memo: Path) -> Json:
    """The record with data and stack; {} and a line in the log if data is unreadable.

    Args:
      made: Result of `of_run`.
      data: The files of the run.
      memo: File that caches digests.
    """
    try:
        return record.to_json(making.with_data(made, data.chosen, memo))
    except (OSError, UserError) as error:
        _warn(f"the run keeps no record: {error}")
        return {}


def contents(made: MadeFrom, modules: Sequence[str], folder: Path) -> dict[str, bytes]:
    """The files of the code by digest, as far as this container has them.

    The log names the others: files larger than `LARGEST`, and those that differ from
    the files that the pipeline was compiled from.

    Args:
      made: Result of `of_run`.
      modules: URLs of archives, see `user_code.archive`.
      folder: A new folder, for the archives.
    """
    homes = [Path(made.yaml).parent, *_downloaded(modules, folder)]
    by_digest: dict[str, bytes] = {}
    for name, digest in made.code.items():
        content = next(_of_digest([home / name for home in homes], digest), None)
        if content is None:
            _warn(
                f"{name} is recorded by its digest only: no file of at most "
                f"{LARGEST >> 20} MiB here has the content that was compiled"
            )
        else:
            by_digest[digest] = content
    return by_digest


def _of_digest(paths: Sequence[Path], digest: str) -> Iterator[bytes]:
    for path in paths:
        if path.is_file() and path.stat().st_size <= LARGEST:
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() == digest:
                yield content


def _downloaded(modules: Sequence[str], folder: Path) -> Iterator[Path]:
    folder.mkdir()
    for url in modules:
        try:
            yield Path(archive.download(url, folder, "kubeflow.modules"))
        except UserError as error:
            _warn(str(error))


def _warn(text: str) -> None:
    print(f"{node_ids.RESOLVE}: {text}", file=sys.stderr)
