"""Makes a run again from its record, in a folder of its own.

FOLDER/workload/   the code, the schema and `pipeline.yaml`
FOLDER/data/       links to the data files that the run read
FOLDER/root/       the root of the new run

Sections that act on the world, or depend on other runs, are left out of the settings:
push, predictions, schedule, notification, gates on spans, the comparison with the model
in production; and `statistics`, which no model depends on. So are nodes of `nodes` that
follow a node of one of these sections.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from strategos.components.data_files import spans
from strategos.components.errors import BadInputError, required
from strategos.components.files import patterns
from strategos.components.files.filesystems import is_remote
from strategos.components.runtime_parameters import NOTHING
from strategos.components.wording import first
from strategos.pipeline.config import MAIN_FILE
from strategos.pipeline.config.nodes import order
from strategos.pipeline.config.types import LATEST
from strategos.pipeline.made_from import record
from strategos.pipeline.made_from.record import Kept
from strategos.pipeline.plan import caching

if TYPE_CHECKING:
    from strategos.pipeline.history.runs import Run

_SHOWN = 10
LEFT_OUT = (
    *("statistics", "pusher", "predict"),
    *("schedule", "gates", "kubeflow", "vertex"),
)
"""Sections of the settings that a run which is made again does without."""


def complete(run: Run, kept: Kept) -> str:
    """Checks that everything in the record of a run is still there.

    Args:
      run: The run, in full.
      kept: Its record.

    Returns:
      The weights that the training started from; `NOTHING` if fresh.

    Raises:
      BadInputError: Only some nodes ran, or something that the run was made from is
        gone or has changed since.
    """
    if kept.made_from.part:
        raise BadInputError(
            f"run {run.run_id} ran only some nodes",
            remedy="Name a run of the whole pipeline; see `strategos runs`.",
        )
    weights = run.trainer.get("warm_start") or NOTHING
    if problems := _problems(kept, weights):
        raise BadInputError(
            "\n    ".join(
                [f"run {run.run_id} cannot be made again:", *first(problems, _SHOWN)]
            ),
            remedy="Restore these files as they were, and repeat the command.",
        )
    return weights


def _problems(kept: Kept, weights: str) -> list[str]:
    problems = [
        f"{name}: its content is no longer stored"
        for name, content in code(kept)
        if content is None
    ]
    problems += _data_problems(kept)
    named = kept.made_from.settings["trainer"]["warm_start"] not in (None, LATEST)
    gone = weights != NOTHING and not (is_remote(weights) or os.path.isdir(weights))
    changed = named and caching.weights_by_content(weights) != kept.made_from.weights
    if gone or changed:
        state = "are gone" if gone else "have changed since"
        problems.append(
            f"{weights}: the weights that the training started from {state}"
        )
    return problems


def write(kept: Kept, folder: Path, weights: str) -> Path:
    """Writes the settings, code and links to the data of a run.

    Args:
      kept: The run's record, from `complete`.
      folder: The folder; it has no `workload` and no `data` yet.
      weights: The weights that the training started from; `NOTHING` if fresh.

    Returns:
      The path of the new `pipeline.yaml`.
    """
    home = _home(folder / "workload", kept)
    home.mkdir(parents=True)
    for name, content in code(kept):
        target = Path(os.path.normpath(home / name))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(required(content))
    text = yaml.safe_dump(
        _settings(kept, folder, home, weights), sort_keys=False, allow_unicode=True
    )
    (home / MAIN_FILE).write_text(
        f"# Run {kept.run_id} of {kept.made_from.yaml}, made again.\n{text}"
    )
    return home / MAIN_FILE


def code(kept: Kept) -> Iterator[tuple[str, bytes | None]]:
    """Yields the name of each file of the code, and its content; None if it is gone."""
    beside = Path(kept.made_from.yaml).parent
    for name, digest in kept.made_from.code.items():
        content = kept.content(digest)
        if content is None and record.digest_of(str(beside / name)) == digest:
            content = (beside / name).read_bytes()  # too large to be stored
        yield name, content


def _data_problems(kept: Kept) -> Iterator[str]:
    for file in kept.made_from.data:
        now = record.digest_of(file.path)
        if now is None:
            yield f"{file.path}: the data file is gone"
        elif now != file.digest:
            yield f"{file.path}: the data file has changed since"
    if (pattern := _pattern(kept)) and is_remote(pattern):
        known = {file.path for file in kept.made_from.data}
        numbers = {file.span for file in kept.made_from.data}
        listed = [x for x in spans.find_spans(pattern) if x.number in numbers]
        for path in sorted({path for span in listed for path in span.files} - known):
            yield f"{path}: the data file is new, in a span that the run has read"


def _pattern(kept: Kept) -> str:
    return str(kept.made_from.settings["data"]["examples"])


def _home(workload: Path, kept: Kept) -> Path:
    """The folder for the YAML: deep enough for code above it, e.g. `../shared.py`."""
    depth = max((name.count("../") for name in kept.made_from.code), default=0)
    parts = Path(kept.made_from.yaml).parent.parts[1:][-depth:] if depth else ()
    return workload.joinpath(*parts)


def _settings(kept: Kept, folder: Path, home: Path, weights: str) -> dict[str, Any]:
    made = {k: v for k, v in kept.made_from.settings.items() if k not in LEFT_OUT}
    trainer, run = dict(made["trainer"]), dict(made["run"])
    trainer.update(compare_fresh=False, fresh_every=None)
    if trainer["warm_start"] == LATEST:
        trainer["warm_start"] = None if weights == NOTHING else weights
    run.update(root=str(folder / "root"), metadata=None, cache=True)
    made_anew = dict.fromkeys(("complete", "prepare", "query"))
    data = {**made["data"], **made_anew, **_links(kept, folder)}
    schema = dict(made["schema"])
    if schema["file"] and not is_remote(schema["file"]):
        beside = os.path.relpath(schema["file"], Path(kept.made_from.yaml).parent)
        schema["file"] = os.path.normpath(home / beside)
    made["nodes"] = _nodes(made.get("nodes") or {})
    return made | {"data": data, "schema": schema, "trainer": trainer, "run": run}


def _nodes(nodes: Mapping[str, Any]) -> dict[str, Any]:
    """The user's nodes, without those that follow one that is left out."""
    gone, kept = order.of_sections(LEFT_OUT), dict(nodes)
    while lost := {name for name, node in kept.items() if _needs(node, gone)}:
        gone |= lost
        kept = {name: node for name, node in kept.items() if name not in lost}
    return {
        name: {**node, "before": [x for x in node["before"] if x not in gone]}
        for name, node in kept.items()
    }


def _needs(node: Mapping[str, Any], gone: Collection[str]) -> bool:
    if node["replaces"]:  # else the replaced node would do its work unnoticed
        return False
    producers = {source.partition(".")[0] for source in node["inputs"].values()}
    return any(name in gone for name in (*producers, *node["after"]))


def _links(kept: Kept, folder: Path) -> dict[str, Any]:
    """Settings that select the data files of the run: links to local ones."""
    pattern, files = _pattern(kept), kept.made_from.data
    if is_remote(pattern):
        numbers = [file.span for file in files]
        has_spans = any(numbers) and "{" in pattern
        return {"spans": f"{min(numbers)}..{max(numbers)}"} if has_spans else {}
    fixed = patterns.fixed_folder(pattern)
    for file in files:
        link = folder / "data" / os.path.relpath(file.path, fixed)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.path)
    relative = posixpath.relpath(pattern, fixed)
    return {"examples": str(folder / "data" / relative), "spans": "all"}
