"""One function per `strategos` command, which `cli` calls by the command's name.

Each takes the parsed arguments and returns the exit code.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import node_ids
from strategos.components.errors import BadInputError, ExitCode, UserError, required
from strategos.pipeline import api
from strategos.pipeline.config import MAIN_FILE
from strategos.pipeline.runners import apart

if TYPE_CHECKING:
    from strategos.pipeline.config.loading import Loaded
    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.run import orchestration


def run(arguments: argparse.Namespace) -> int:
    """`strategos run` on this machine, with its live view and a table at the end."""
    from strategos.pipeline.view.live import LiveView

    request = apart.RunRequest(
        pipeline=arguments.pipeline,
        overlays=arguments.overlay,
        sets=arguments.set,
        runner=arguments.runner,
        cache=not arguments.no_cache,
        **{name: getattr(arguments, name) for name in apart.OPTIONS},
    )
    return report(*api.run_here(request, LiveView))


def run_to(
    node: str,
    pipeline: str,
    overlays: Sequence[str] = (),
    sets: Sequence[str] = (),
) -> api.RunResult:
    """Runs a pipeline up to a node, in another process, with its live view.

    Args:
      node: The last node to run.
      pipeline: The pipeline's YAML.
      overlays: YAML files that override it.
      sets: Settings in the syntax of `--set`.

    Raises:
      UserError: The run is rejected, or a node fails.
    """
    from strategos.pipeline.view.live import LiveView

    def follow(events: str, process: Any) -> int:
        with LiveView(events):
            return int(process.wait())

    request = apart.RunRequest(pipeline, overlays, sets, to_node=node)
    result: api.RunResult = apart.run(request, follow)
    if isinstance(result.error, UserError):
        raise result.error
    return result


def report(config: Config, result: orchestration.Result) -> int:
    """Reports a run that has ended, also by `notify`; returns its exit code."""
    from strategos.pipeline.view import report

    query = f"strategos predict {_shown(config.path)} ROWS.csv"
    show = functools.partial(report.report, next_step=query)
    return api.conclude(config, result, show).exit_code


def validate(arguments: argparse.Namespace) -> int:
    """`strategos validate`: reports all problems at once, without TensorFlow."""
    from strategos.pipeline.config import loading

    main = str(arguments.pipeline)
    validation = api.validate(
        main, overlays=arguments.overlay, sets=arguments.set, deep=arguments.deep
    )
    problems, loaded = validation.problems, validation.loaded
    notes = list(_notes(loaded.config)) if loaded and not problems else []
    if arguments.json:
        listed = [_described(each) for each in problems]
        print(json.dumps({"problems": listed, "notes": notes}, indent=2))
        return ExitCode.BAD_INPUT if problems else ExitCode.DONE
    if problems or loaded is None:
        raise loading.ConfigError(problems, main)
    print(f"{main}: no problems found")
    for each in notes:
        print(f"note: {each}")
    return ExitCode.DONE


def _notes(config: Config) -> Iterator[str]:
    from strategos.pipeline.checks import nodes
    from strategos.pipeline.root import names

    if not names.is_set(config):
        yield (
            f"`name` is not set. Add `name: {config.name}`, so that history, cache and "
            "the model in production never depend on the folder's name."
        )
    if unread := nodes.unread(config):
        yield (
            f"the types of {', '.join(unread)} are checked when the pipeline is "
            "compiled; `--deep` checks them now."
        )


def _described(problem: UserError) -> dict[str, Any]:
    """A problem as JSON-able values, without passwords."""
    place = problem.place
    return {
        "source": place and place.source,
        "line": (place and place.line) or None,
        "column": (place and place.column) or None,
        "key": problem.key,
        "problem": problem.headline,
        "remedy": str(problem)[len(problem.headline) :].strip(),
    }


def config(arguments: argparse.Namespace) -> int:
    """`strategos config`: the effective settings, each with its origin."""
    from strategos.pipeline.config import loading

    loaded = load(arguments)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    text = loading.effective(loaded, width)
    if arguments.json:
        text = loading.effective_json(loaded)
    print(text.rstrip("\n"))
    return ExitCode.DONE


def worker(arguments: argparse.Namespace) -> int:
    """`strategos worker`: runs one task of a training started on another host."""
    from strategos.components.trainer.hosts import worker as host_worker

    settings = load(arguments).config
    host_worker.join(
        os.path.join(settings.run.root, settings.name, node_ids.TRAINER),
        str(settings.folder),
        settings.operation().start_timeout,
    )
    return ExitCode.DONE


def lineage(arguments: argparse.Namespace) -> int:
    """`strategos lineage`: from data files to the pushed version."""
    from strategos.pipeline.history import lineage as lineages
    from strategos.pipeline.history import roots
    from strategos.pipeline.view import lineage as lineage_view

    history = None
    if os.path.exists(arguments.model) and not (arguments.pipeline or arguments.root):
        history = roots.that_pushed(arguments.model)
    history = history or roots.open_history(arguments.pipeline, arguments.root)
    traced = lineages.lineage(history.store, arguments.model)
    if arguments.json:
        print(json.dumps(lineages.to_json(traced), indent=2))
    else:
        lineage_view.show(traced)
    return ExitCode.DONE


def tensorboard(arguments: argparse.Namespace) -> int:
    """`strategos tensorboard`: shows the training logs of the last runs."""
    from strategos.pipeline.history import kubeflow, roots, tensorboard

    if arguments.dump:
        tensorboard.show_dump(arguments.dump, arguments.port)
    if kubeflow.is_address(arguments.root or ""):
        raise BadInputError(
            "the logs of a run on Kubeflow are in its object store",
            key="--root",
            received=arguments.root,
            remedy="Start TensorBoard itself there: tensorboard --logdir s3://…",
        )
    history = roots.open_history(arguments.pipeline, arguments.root)
    folders = tensorboard.log_folders(history.store, history.pipeline, arguments.run)
    tensorboard.show(folders, arguments.port)
    return ExitCode.DONE


def doctor(arguments: argparse.Namespace) -> int:
    """`strategos doctor`: checks this machine; FAILED if something needs fixing."""
    from strategos.pipeline.checks import machine

    main_file = MAIN_FILE if os.path.isfile(MAIN_FILE) else None
    checks = machine.diagnose(arguments.pipeline or main_file)
    if arguments.json:
        print(json.dumps([dataclasses.asdict(each) for each in checks], indent=2))
    else:
        print(machine.render(checks))
    healthy = all(check.ok is not False for check in checks)
    return ExitCode.DONE if healthy else ExitCode.FAILED


def engine(arguments: argparse.Namespace) -> int:
    """`strategos engine setup`: downloads the jars of `run.engine.runner: flink`.

    Raises:
      UserError: Java or Maven is missing, or the download failed.
    """
    from strategos.components.shards.flink import jars

    print(f"Flink {jars.FLINK} and Beam's job server are in {jars.setup()}")
    return ExitCode.DONE


def compile(arguments: argparse.Namespace) -> int:
    """`strategos compile`: writes the pipeline to a file for Kubeflow or Vertex.

    Raises:
      BadInputError: The pipeline cannot run on the target; names every reason.
    """
    settings, target = load(arguments).config, arguments.target
    reject_target(settings, target)
    suffix = {"kubeflow": "yaml", "vertex": "json"}[target]
    output = Path(arguments.output or f"{settings.name}-{target}.{suffix}")
    compile_to(settings, target, output)
    print(f"{output}: compiled for {target}")
    return ExitCode.DONE


def reject_target(config: Config, target: str, *others: UserError) -> None:
    """Raises a ConfigError if the pipeline cannot run on a target, with all reasons.

    Args:
      config: The effective settings.
      target: `kubeflow` or `vertex`.
      *others: Problems that are known already.
    """
    from strategos.pipeline.checks import cluster
    from strategos.pipeline.run import preflight

    preflight.raise_all(
        config, [*cluster.check(config, config.data.listing(), target), *others]
    )


def prepare_image_data(config: Config, target: str) -> None:
    """Makes missing data that the image of a target contains, see `prepare_data`.

    Args:
      config: The effective settings, after `reject_target`.
      target: `kubeflow` or `vertex`.

    Raises:
      BadInputError: See `prepare_data`.
    """
    from strategos.pipeline.plan.cluster import paths
    from strategos.pipeline.run import preparation

    if paths.is_in_image(config.data.examples, getattr(config, target)):
        preparation.prepare_data(config, config.data.listing())


def compile_to(config: Config, target: str, output: Path, **options: Any) -> None:
    """Compiles the pipeline for a target, after `reject_target`.

    Args:
      config: The effective settings.
      target: `kubeflow` or `vertex`.
      output: The file to write.
      **options: `without_baseline` and `take_over`, as of `planning.RunOptions`.
    """
    from strategos.pipeline.view import quiet

    print(f"compiling for {target}: some 10 seconds", file=sys.stderr, flush=True)
    quiet.hush()
    from strategos.pipeline.plan import plugins
    from strategos.pipeline.plan.cluster import compiling, steps

    compiling.compile_to(config, target, output, **options)
    notes = [plugins.note(config)]
    if target == "kubeflow":
        notes += steps.notes(required(config.kubeflow))
    for note in filter(None, notes):
        print(f"note: {note}")


def load(arguments: argparse.Namespace, *sets: str) -> Loaded:
    """Loads the settings that the arguments name, with further `--set`s."""
    sets = (*arguments.set, *sets)
    return api.load(arguments.pipeline, overlays=arguments.overlay, sets=sets)


def _shown(path: Path) -> str:
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else str(path)
