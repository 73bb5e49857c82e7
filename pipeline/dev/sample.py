"""A sample of the data, with a root of its own, to try changes of code on."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from strategos.components.data_files import sources
from strategos.pipeline.config.sections import Config
from strategos.pipeline.root.state import make_state, state_folder
from strategos.pipeline.run import preparation

_FOLDERS = re.compile(r"[^*?\[{]*/")  # of a pattern, before its first wildcard


def of(config: Config, rows: int) -> list[str]:
    """Copies the first rows of each data file, and returns settings for them.

    The copies and the root of their runs are in the local state of the pipeline's root:
    no other run reads these outputs, or counts these runs.

    Args:
      config: The effective settings.
      rows: Number of rows, in equal parts from all files of the spans that a run reads.

    Returns:
      Settings in the syntax of `--set`.

    Raises:
      UserError: The data are missing or cannot be read.
    """
    data = config.data.listing()
    preparation.prepare_data(config, data)
    folder = state_folder(config.run.root) / "samples" / str(rows)
    pattern = config.data.examples
    fixed = _FOLDERS.match(pattern)
    above = fixed.group() if fixed else ""
    copied = f"{folder}/data/"
    shutil.rmtree(copied, ignore_errors=True)
    paths = [path for span in data.chosen for path in span.files]
    for index, path in enumerate(paths):
        count = rows * (index + 1) // len(paths) - rows * index // len(paths)
        copy = Path(copied, path.removeprefix(above))
        make_state(copy.parent)
        sources.open_source(path, config.data.reading).copy_first(
            max(1, count), str(copy)
        )
    changed: dict[str, Any] = {
        "data.examples": copied + pattern.removeprefix(above),
        "data.complete": None,
        "run.root": str(folder / "root"),
        "run.metadata": "sqlite",
    }
    return [f"{key}={json.dumps(value)}" for key, value in changed.items()]
