"""`strategos models`, `canary`, `rollback`: a model's pushed versions."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from strategos.components.errors import BadInputError, ExitCode, Place, required
from strategos.components.files import filesystems
from strategos.components.push_targets import targets
from strategos.pipeline import commands
from strategos.pipeline.history import contexts
from strategos.pipeline.history import models as history
from strategos.pipeline.history.store import NoRunsError, Store
from strategos.pipeline.root import metadata

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config


def models(arguments: argparse.Namespace) -> int:
    """Lists the versions in `pusher.to`, newest first, after one on trial."""
    config = pushing(arguments)
    store, pusher = store_of(config), required(config.pusher)
    waiting = history.canary(store, pusher.to, pusher.canary)
    listed = history.versions(store, pusher.to)
    listed = [waiting, *listed] if waiting else listed
    if arguments.json:
        print(json.dumps([dataclasses.asdict(each) for each in listed], indent=2))
        return ExitCode.DONE
    from strategos.pipeline.view import models as view

    view.show(listed, pusher.to)
    return ExitCode.DONE


def canary(arguments: argparse.Namespace) -> int:
    """Makes the canary live, or withdraws it."""
    decide = {"promote": _promote, "abort": _abort}[arguments.what]
    return decide(arguments, pushing(arguments))


def _promote(arguments: argparse.Namespace, config: Config) -> int:
    from strategos.pipeline.run import canary as canaries
    from strategos.pipeline.run import retrain as retraining

    store, data = store_of(config), None
    if not arguments.unjudged:
        connection = metadata.of(config)
        data, _ = retraining.accepted(config, config.data.listing(), connection)
    promoted, pushed, verdict = canaries.promote(config, store, data)
    judged = verdict.reason
    if verdict.span is not None:
        judged = f"on span {verdict.span}, {verdict.reason}"
    print(f"version {pushed} is live: canary {promoted.version} ({judged})")
    return ExitCode.DONE


def _abort(arguments: argparse.Namespace, config: Config) -> int:
    from strategos.pipeline.run import canary as canaries

    aborted = canaries.abort(config, store_of(config))
    print(f"canary {aborted.version} is withdrawn; its data are not tried again")
    return ExitCode.DONE


def rollback(arguments: argparse.Namespace) -> int:
    """Makes an earlier version live again."""
    from strategos.pipeline.run import rollback as rollbacks

    config = pushing(arguments)
    store = store_of(config)
    earlier, pushed = rollbacks.roll_back(config, store, arguments.version)
    print(f"version {pushed} is live: a copy of {earlier.version}")
    for run in contexts.running(store):
        print(f"run {run} is in progress; it does not push over this version")
    return ExitCode.DONE


def pushing(arguments: argparse.Namespace) -> Config:
    """Loads the settings, which must name a folder for pushed models.

    Raises:
      BadInputError: They name none, or one that cannot be used from here.
    """
    config = commands.load(arguments).config
    if not config.pusher:
        raise BadInputError(
            "this section is missing, so no model is pushed",
            key="pusher",
            place=Place(str(arguments.pipeline)),
            remedy="Add `pusher: {to: DIR}` and run the pipeline.",
        )
    problem = filesystems.unknown(config.pusher.to)
    if problem:
        raise config.problem("pusher.to", problem)
    return config


def store_of(config: Config) -> Store:
    """ML Metadata of the root; an empty store if only versions of other roots exist.

    E.g. a run on a cluster or on another machine pushed them; their manifests describe
    them.
    """
    try:
        return Store(metadata.of(config), root=config.run.root)
    except NoRunsError:
        folders = required(config.pusher).folders.values()
        if not any(targets.of(folder).versions() for folder in folders):
            raise
        return Store.empty(config.run.root)
