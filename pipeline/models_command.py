"""`strategos models`, `canary`, `rollback`, `predict`: a model's pushed versions."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from strategos.components.errors import BadInputError, ExitCode, Place, required
from strategos.components.files import filesystems
from strategos.components.push_targets import targets
from strategos.pipeline import commands
from strategos.pipeline.history import contexts
from strategos.pipeline.history import models as history
from strategos.pipeline.history.store import NoRunsError, Store
from strategos.pipeline.root import metadata
from strategos.pipeline.root.state import state_folder

if TYPE_CHECKING:
    from strategos.components.predict.client import ModelServer
    from strategos.components.predict.model import Signature
    from strategos.pipeline.config.sections import Config


def models(arguments: argparse.Namespace) -> int:
    """Lists the versions in `pusher.to`, newest first, after one on trial."""
    config = _pushing(arguments)
    store, pusher = _store(config), required(config.pusher)
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
    return decide(arguments, _pushing(arguments))


def _promote(arguments: argparse.Namespace, config: Config) -> int:
    from strategos.pipeline.run import canary as canaries
    from strategos.pipeline.run import retrain as retraining

    store, data = _store(config), None
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

    aborted = canaries.abort(config, _store(config))
    print(f"canary {aborted.version} is withdrawn; its data are not tried again")
    return ExitCode.DONE


def rollback(arguments: argparse.Namespace) -> int:
    """Makes an earlier version live again."""
    from strategos.pipeline.run import rollback as rollbacks

    config = _pushing(arguments)
    store = _store(config)
    earlier, pushed = rollbacks.roll_back(config, store, arguments.version)
    print(f"version {pushed} is live: a copy of {earlier.version}")
    for run in contexts.running(store):
        print(f"run {run} is in progress; it does not push over this version")
    return ExitCode.DONE


def predict(arguments: argparse.Namespace) -> int:
    """`strategos predict`: rows through the pushed model's serving signature.

    Raises:
      BadInputError: No model is pushed, or the file of rows does not exist.
    """
    from strategos.components import predict as prediction
    from strategos.components.predict.model import Model
    from strategos.pipeline.plan import production
    from strategos.pipeline.view import quiet

    config = _pushing(arguments)
    rows = arguments.rows
    if rows is None and sys.stdin.isatty():
        raise BadInputError(
            "no rows to predict",
            remedy="Name a file of rows, or pipe one to standard input.",
        )
    rows = rows or prediction.STDIN
    if rows != prediction.STDIN and (not Path(rows).exists() or Path(rows).is_dir()):
        raise BadInputError(f"{rows}: no such file of rows to predict")
    target = required(config.pusher).to
    server = _model_server(config)
    model = production.newest(_store(config).mlmd, target)
    if model is None:
        raise BadInputError(
            f"no model has been pushed to {target} yet",
            key="pusher.to",
            remedy=f"Run: strategos run {arguments.pipeline}",
        )

    def load(folder: Path) -> Signature:
        def loaded() -> Signature:
            quiet.hush()
            return Model(folder)

        return server.load(model.version, loaded) if server else loaded()

    mark = arguments.bad_rows == "mark"
    with targets.local(model.path) as folder:
        answers = prediction.predict(folder, rows, mark=mark, load=load)
    prediction.show(answers, as_json=arguments.json, model=model.path)
    return ExitCode.DONE


def _model_server(config: Config) -> ModelServer | None:
    """The process that keeps the pushed model loaded; None where none may stay."""
    from strategos.components.predict import client
    from strategos.pipeline.view import quiet

    target = required(config.pusher).to
    if filesystems.is_remote(target) or not client.allowed(os.environ):
        return None
    environ = {**os.environ, **quiet.environment()}
    server = client.ModelServer(state_folder(config.run.root), target, environ)
    server.start()
    return server


def _pushing(arguments: argparse.Namespace) -> Config:
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


def _store(config: Config) -> Store:
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
