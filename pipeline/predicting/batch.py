"""`strategos predict --output FOLDER`: files of any size, to files of predictions."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strategos.components import events, worker_process
from strategos.components.data_files import sources, spans
from strategos.components.data_files.listing import select_spans
from strategos.components.errors import BadInputError, ExitCode
from strategos.components.files import filesystems, listing, temporary
from strategos.components.predict.batch.folder import REJECTED, OutputFolder
from strategos.components.predict.batch.request import BATCH_SIZE, Job, start
from strategos.components.predict.piped import STDIN
from strategos.components.push_targets import targets
from strategos.components.user_code.workload_paths import WorkloadPaths
from strategos.components.wording import counted, duration
from strategos.pipeline.checks import engine as engine_checks
from strategos.pipeline.config.sections import Config
from strategos.pipeline.plan.planning import engine_of
from strategos.pipeline.plan.production import Production
from strategos.pipeline.root.state import file_hashes
from strategos.pipeline.view import quiet
from strategos.pipeline.view.live import LiveView

_NODE = "Predict"


def predict(arguments: argparse.Namespace, config: Config, model: Production) -> int:
    """Predicts all rows of files.

    Args:
      arguments: The parsed command line.
      config: The effective settings.
      model: The pushed version.

    Raises:
      BadInputError: The files, the columns or the folder cannot be used.
      UserError: A row cannot be read or predicted. No predictions are published.
    """
    if arguments.bad_rows != "fail" or arguments.json:
        raise BadInputError(
            "--json and --bad-rows are for predictions that are printed",
            key="--output",
            remedy="For the format see `--format`; `--set data.on_bad_row=quarantine` "
            "sets bad rows aside.",
        )
    for problem in engine_checks.check(config):
        raise problem
    files = _files(arguments, config)
    path = _absolute(arguments.output)
    _check_apart(path, files)
    with targets.local(model.path) as local:
        job = _job(arguments, config, model, files)
        request, key = job.request(local, file_hashes(config.run.root))
        job.check_columns(local)
        folder = OutputFolder(path, key, job.suffix)
        folder.check()
        with folder.held():
            folder.begin()
            answer, seconds = _run(config, model, request, folder)
    _show(answer, seconds, arguments.output, model)
    return ExitCode.DONE


def _files(arguments: argparse.Namespace, config: Config) -> list[str]:
    """The data files in order, as absolute paths or URLs.

    Raises:
      BadInputError: None exist.
    """
    if bool(arguments.spans) == bool(arguments.rows):
        raise BadInputError(
            "both files and --spans" if arguments.spans else "no rows to predict",
            remedy="Name files, folders or patterns; or spans of the pipeline's own "
            "data: `--spans 3..5`.",
        )
    if arguments.spans:
        chosen = select_spans(config.data.listing().found, arguments.spans)
        return [path for span in chosen for path in span.files]
    return list(dict.fromkeys(x for word in arguments.rows for x in _named(word)))


def _named(word: str) -> list[str]:
    """The files of a path, a folder, a pattern or a URL."""
    if word == STDIN:
        raise BadInputError(
            "standard input is read once, and files are read in parts",
            received=word,
            remedy="Write the rows to a file.",
        )
    path = _absolute(word)
    if not filesystems.is_remote(path) and os.path.isfile(path):
        return [path]
    if not set(path) & set("*?[{") and _is_folder(path):
        return _of_folder(path)
    try:
        existing = spans.find_spans(path)
    except BadInputError as error:
        raise error.but(key="") from error
    return [file for span in existing for file in span.files]


def _is_folder(path: str) -> bool:
    if not filesystems.is_remote(path):
        return os.path.isdir(path)
    return sources.name_of(path) is None


def _of_folder(path: str) -> list[str]:
    names = {file: os.path.basename(file) for file in listing.listed(path)}
    files = [file for file, name in names.items() if name[0] not in "._"]
    for file in files:
        if sources.name_of(file) is None:
            raise BadInputError(
                f"{file} has no format that is known",
                received=path,
                remedy="Name the files by a pattern, such as `FOLDER/*.parquet`.",
            )
    if not files:
        raise BadInputError(
            "the folder has no data file",
            received=path,
            remedy="For files of folders in it write `FOLDER/**/*.parquet`.",
        )
    return files


def _absolute(path: str) -> str:
    if problem := filesystems.unknown(path):
        raise BadInputError(problem, received=path)
    remote = filesystems.is_remote(path)
    return path.rstrip("/") if remote else os.path.abspath(path)


def _check_apart(output: str, files: Sequence[str]) -> None:
    """Rejects an output in which the data are: the next command would read it."""
    for file in files:
        if f"{file}/".startswith(f"{output}/"):
            raise BadInputError(
                f"the data file {file} is in it",
                key="--output",
                received=output,
                remedy="Name another folder.",
            )


def _job(
    arguments: argparse.Namespace,
    config: Config,
    model: Production,
    files: Sequence[str],
) -> Job:
    return Job(
        pipeline=config.name,
        files=tuple(files),
        columns=tuple(arguments.columns or ()),
        format=arguments.format or "parquet",
        batch_size=arguments.batch_size or BATCH_SIZE,
        bad_rows=config.data.reading,
        version=model.version,
        path=model.path,
    )


def _run(
    config: Config,
    model: Production,
    request: Mapping[str, Any],
    folder: OutputFolder,
) -> tuple[dict[str, Any], float]:
    """Runs the process that predicts; returns its answer, and seconds."""
    started = time.time()
    with _shown() as path, LiveView(path), worker_process.log_kept_back():
        run_id = f"of model version {model.version}"
        about = {"pipeline": config.name, "run_id": run_id, "nodes": [_NODE]}
        events.emit("run_started", **about)
        events.emit("node_started", node=_NODE)
        events.set_node(_NODE)
        here = WorkloadPaths(folder=str(config.folder), plugins=config.plugins)
        environment = {**quiet.environment(), **here.to_environment()}
        answer = start(request, folder, engine_of(config), environment)
        seconds = time.time() - started
        events.emit("node_finished", node=_NODE, seconds=seconds)
    return answer, seconds


@contextlib.contextmanager
def _shown() -> Iterator[str]:
    """Opens an event file for the time of the block, and yields its path."""
    with temporary.folder() as folder:
        path = f"{folder}/events.jsonl"
        events.open_sink(path)
        try:
            yield path
        finally:
            events.open_sink(None)


def _show(
    answer: Mapping[str, Any], seconds: float, output: str, model: Production
) -> None:
    rows, rejected = answer["rows"], answer["rejected"]
    print(
        f"{counted(rows, 'row')} predicted by version {model.version} in "
        f"{duration(seconds)} ({rows / max(seconds, 0.001):,.0f} rows/s), in "
        f"{counted(answer['files'], 'file')} of {output}"
    )
    if rejected:
        print(f"{counted(rejected, 'row')} rejected, in {output}/{REJECTED}")
