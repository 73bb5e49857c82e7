"""`strategos predict`: rows through the pushed model's serving signature."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from strategos.components.errors import BadInputError, ExitCode, required
from strategos.components.files import filesystems
from strategos.components.push_targets import targets
from strategos.pipeline import models_command
from strategos.pipeline.history import attempts
from strategos.pipeline.root.state import state_folder

if TYPE_CHECKING:
    from strategos.components.predict.client import ModelServer
    from strategos.components.predict.model import Signature
    from strategos.components.predict.prediction import Background
    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.plan.production import Production


def predict(arguments: argparse.Namespace) -> int:
    """Predicts rows of a file, or with `--output` of many files.

    Raises:
      BadInputError: No model is pushed, or the rows do not exist.
    """
    config = models_command.pushing(arguments)
    if arguments.output is not None:
        from strategos.pipeline.predicting import batch

        for name in ("explain", "files"):
            if getattr(arguments, name):
                raise BadInputError(
                    f"--{name} cannot be combined with --output",
                    remedy="Predict a file of rows without `--output`.",
                )
        return batch.predict(arguments, config, _model_of(arguments, config))
    _reject_batch_options(arguments)
    return _print(arguments, config)


def _model_of(arguments: argparse.Namespace, config: Config) -> Production:
    """The model that predicts: the newest pushed version, or the one of `--model`.

    Args:
      arguments: The parsed command line.
      config: The effective settings.

    Raises:
      BadInputError: Nothing is pushed, or not this version.
    """
    from strategos.pipeline.plan import production

    destination = required(config.pusher).to
    store = models_command.store_of(config).mlmd
    model = production.newest(store, destination)
    if model is None:
        raise BadInputError(
            f"no model has been pushed to {destination} yet",
            key="pusher.to",
            remedy=f"Run: strategos run {arguments.pipeline}",
        )
    if arguments.model in (None, model.version):
        return model
    target = targets.of(destination)
    versions = target.versions()
    if arguments.model not in versions:
        raise BadInputError(
            f"{destination} has no such version",
            key="--model",
            received=str(arguments.model),
            expected=", ".join(map(str, versions)),
        )
    return production.unrecorded(store, target, arguments.model)


def _reject_batch_options(arguments: argparse.Namespace) -> None:
    options = {
        "--spans": arguments.spans,
        "--columns": arguments.columns,
        "--format": arguments.format,
        "--batch-size": arguments.batch_size,
    }
    names = [name for name, value in options.items() if value is not None]
    if names or len(arguments.rows) > 1:
        raise BadInputError(
            f"{names[0] if names else 'more than one file of rows'} needs a folder for "
            "the predictions",
            remedy="Add `--output FOLDER`.",
        )


def _print(arguments: argparse.Namespace, config: Config) -> int:
    from strategos.components.predict import prediction
    from strategos.components.predict.model import Model
    from strategos.pipeline.view import quiet

    (rows,) = arguments.rows or [None]
    if rows is None and sys.stdin.isatty():
        raise BadInputError(
            "no rows to predict",
            remedy="Name a file of rows, or pipe one to standard input.",
        )
    rows = rows or prediction.STDIN
    if rows != prediction.STDIN and (not Path(rows).exists() or Path(rows).is_dir()):
        raise BadInputError(
            f"{rows}: no such file of rows to predict",
            remedy="For a folder or a pattern add `--output FOLDER`.",
        )
    server = _model_server(config)
    model = _model_of(arguments, config)

    def load(folder: Path) -> Signature:
        def loaded() -> Signature:
            quiet.hush()
            return Model(folder)

        return server.load(model.version, loaded) if server else loaded()

    mark = arguments.bad_rows == "mark"
    background = _background(arguments, config, model)
    with targets.local(model.path) as folder:
        answers = prediction.predict(
            folder,
            rows,
            mark=mark,
            files=arguments.files,
            load=load,
            background=background,
        )
        of = prediction.scored(folder)
    prediction.show(answers, as_json=arguments.json, model=model.path, of=of)
    return ExitCode.DONE


def _background(
    arguments: argparse.Namespace, config: Config, model: Production
) -> Background | None:
    """The rows that explanations compare with; None without `--explain`.

    Raises:
      BadInputError: The rows do not exist.
    """
    from strategos.components.predict import explaining

    if not arguments.explain:
        if arguments.background is not None:
            raise BadInputError("--background needs --explain")
        return None
    file = arguments.background
    if file is not None:
        if not Path(file).is_file():
            raise BadInputError("no such file", key="--background", received=file)
        return functools.partial(explaining.of_rows, file)
    store = models_command.store_of(config)
    artifact = model.model or model.artifact
    examples = attempts.training_examples(store, artifact) if artifact else None
    if examples is None:
        raise BadInputError(
            f"{config.run.root} has no training data of version {model.version}",
            key="--explain",
            remedy="Name a file with such rows: --background FILE.",
        )
    return functools.partial(explaining.of_training, examples)


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
