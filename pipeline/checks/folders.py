"""Checks of the folders that a run on this machine writes to, and of its name there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from strategos.components.errors import UserError
from strategos.components.files import patterns
from strategos.components.files.filesystems import is_remote, unknown
from strategos.components.push_targets import targets
from strategos.pipeline.config.problems import shown
from strategos.pipeline.config.sections import Config
from strategos.pipeline.root import names


def check(config: Config) -> Iterator[UserError]:
    """Yields problems with the root, `pusher.to` and the pipeline's name under them.

    Args:
      config: The effective settings.
    """
    yield from _name_problems(config)
    yield from root_problems(config)
    yield from _access_problems(config)


def _name_problems(config: Config) -> Iterator[UserError]:
    if not names.is_set(config) and config.run.metadata != "sqlite":
        yield config.problem(
            "name",
            "is missing: ML Metadata on a server tells pipelines apart by their names "
            "only",
            remedy=f"Add `name: {config.name}`.",
        )


def root_problems(config: Config) -> Iterator[UserError]:
    """Yields problems of the root's place that do not depend on the machine.

    Args:
      config: The effective settings.
    """
    data = patterns.fixed_folder(config.data.examples)
    if config.run.root == "/":
        remedy = "Name a folder, such as `runs`."
        yield config.problem(
            "run.root", "received /; this folder holds everything else", remedy=remedy
        )
    for key, folder in config.pusher.folders.items() if config.pusher else ():
        if f"{config.run.root}/".startswith(f"{folder.rstrip('/')}/"):
            message = f"models must not be pushed over the root, {config.run.root}"
            remedy = "Name another folder."
            yield config.problem(key, message, remedy=remedy)
        elif f"{data}/".startswith(f"{folder.rstrip('/')}/"):
            message = f"models must not be pushed among the data, {data}"
            yield config.problem(key, message, remedy="Name another folder.")
    if any(sign in config.run.root for sign in "*?["):
        yield config.problem(
            "run.root",
            "TFX lists an artifact's files by a pattern, and would find none there",
            received=config.run.root,
            expected="a folder without `*`, `?` and `[` in its path",
        )


def _access_problems(config: Config) -> Iterator[UserError]:
    pushed = config.pusher.folders if config.pusher else {}
    predicted = {"predict.to": config.predict.to} if config.predict else {}
    for key, folder in {"run.root": config.run.root, **pushed, **predicted}.items():
        if not is_remote(folder):
            cause = _not_writable(folder)
        elif key in pushed:
            cause = _no_target(folder)
        else:
            cause = unknown(folder)
        if cause:
            remedy = f"Correct it, or name another folder with `--set {key}=DIR`."
            yield config.problem(key, cause, remedy=remedy)


def _no_target(url: str) -> str | None:
    """Why nothing can be pushed to a URL; None if it is a usable target."""
    try:
        targets.kind_of(url).check(url)
    except UserError as error:
        allowed = f"; use {error.expected}" if error.expected else ""
        return f"{error.message}{allowed}"
    return None


def _not_writable(path: str) -> str | None:
    """Why `path` cannot be written; None if it can. It need not exist yet."""
    folder = Path(path)
    existing = next(p for p in (folder, *folder.parents) if os.path.lexists(p))
    if not existing.is_dir():
        return f"{shown(existing)} is not a folder"
    if not os.access(existing, os.W_OK | os.X_OK, effective_ids=True):
        return f"{shown(existing)} cannot be written"
    return None
