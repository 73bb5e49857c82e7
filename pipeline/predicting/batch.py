"""`strategos predict --output FOLDER`: files of any size, to files of predictions."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from strategos.components import errors, events, worker_process
from strategos.components.data_files import shards, sources, spans
from strategos.components.data_files.listing import select_spans
from strategos.components.data_files.sources.reading import Reading
from strategos.components.errors import BadInputError, ExitCode, Place, UserError
from strategos.components.files import digests, filesystems, storage, temporary
from strategos.components.predict.batch.folder import REJECTED, OutputFolder
from strategos.components.predict.piped import STDIN
from strategos.components.predict.rows import Columns
from strategos.components.push_targets import targets
from strategos.components.user_code.workload_paths import WorkloadPaths
from strategos.components.wording import choices, counted, did_you_mean, duration
from strategos.pipeline.checks import engine as engine_checks
from strategos.pipeline.config.sections import Config
from strategos.pipeline.plan.planning import engine_of
from strategos.pipeline.plan.production import Production
from strategos.pipeline.root.state import file_hashes
from strategos.pipeline.view import quiet
from strategos.pipeline.view.live import LiveView

_WORKER = "strategos.components.predict.batch.process"
_NODE = "Predict"
_BATCH_SIZE = 4096


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
        request = _request(arguments, config, model, local, files)
        _check_columns(request, Path(local), files)
        folder = OutputFolder(**request["folder"])
        folder.check()
        with folder.held():
            folder.begin()
            answer, seconds = _run(config, model, request)
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
        found = spans.find_spans(path)
    except BadInputError as error:
        raise error.but(key="") from error
    return [file for span in found for file in span.files]


def _is_folder(path: str) -> bool:
    if not filesystems.is_remote(path):
        return os.path.isdir(path)
    return sources.name_of(path) is None


def _of_folder(path: str) -> list[str]:
    names = {file: os.path.basename(file) for file in storage.listed(path)}
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


def _request(
    arguments: argparse.Namespace,
    config: Config,
    model: Production,
    local: str,
    files: Sequence[str],
) -> dict[str, Any]:
    """The request to the process that predicts; see `process.predict`."""
    columns = Columns.of(Path(local))
    reading = dataclasses.replace(
        columns.reading,
        on_bad_row=config.data.on_bad_row,
        max_bad_fraction=config.data.max_bad_fraction,
        extra_columns="ignore",
    )
    format_ = arguments.format or "parquet"
    request = {
        "files": list(files),
        "reading": reading.to_json(),
        "columns": arguments.columns or [],
        "format": format_,
        "batch_size": arguments.batch_size or _BATCH_SIZE,
    }
    about = {
        "strategos": metadata.version("strategos"),
        "pipeline": config.name,
        "model": {
            "version": model.version,
            "path": model.path,
            "sha256": _digest_of_model(local),
        },
        "data": _described(config, files),
        "format": format_,
        "copied": request["columns"],
    }
    # Other code may write other bytes; the memory allowed or the workers do not count.
    code = digests.of_sources(Path(shards.__file__).parents[1])
    hashed = json.dumps([request, about, code, _stack()], sort_keys=True)
    key = hashlib.sha256(hashed.encode()).hexdigest()[:16]
    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    suffix = f".{format_}"
    return {
        **request,
        "model": local,
        "folder": {"path": _absolute(arguments.output), "key": key, "suffix": suffix},
        "manifest": {"created": created, **about},
    }


def _stack() -> list[str]:
    return [f"{x} {metadata.version(x)}" for x in ("tensorflow", "pyarrow")]


def _digest_of_model(folder: str) -> str:
    """SHA-256 of the names and contents of all files of a SavedModel."""
    paths = sorted(str(x) for x in Path(folder).rglob("*") if x.is_file())
    digest = hashlib.sha256()
    for path, content in zip(paths, digests.digests(paths), strict=True):
        digest.update(f"{os.path.relpath(path, folder)}\0{content}\0".encode())
    return digest.hexdigest()


def _described(config: Config, files: Sequence[str]) -> list[dict[str, Any]]:
    """Path, size and digest of each data file."""
    memo = file_hashes(config.run.root)
    try:
        found: list[str] = []
        for remote in (False, True):
            some = [x for x in files if filesystems.is_remote(x) == remote]
            found += digests.digests(some, memo) if some else []
        statuses = [storage.statuses([path])[0] for path in files]
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise BadInputError(reason, place=Place(str(error.filename))) from error
    local = [x for x in files if not filesystems.is_remote(x)]
    order = [*local, *(x for x in files if filesystems.is_remote(x))]
    by_path = dict(zip(order, found, strict=True))
    return [
        {"path": path, "bytes": status.size, "sha256": by_path[path]}
        for path, status in zip(files, statuses, strict=True)
    ]


def _check_columns(
    request: Mapping[str, Any], model: Path, files: Sequence[str]
) -> None:
    """Rejects files that lack a column, as far as their headers tell."""
    columns, reading = Columns.of(model), Reading.from_json(request["reading"])
    span = spans.Span(0, None, None, tuple(files))
    try:
        opened = [source for _, source in shards.open_files([span], reading)]
    except UserError as error:
        described = {**error.to_json(), "type": BadInputError.__name__}
        raise errors.from_json(described) from error
    for source in opened:
        if source.open_ended:
            continue
        columns.check_names(source.path, source.names)
        for name in request["columns"]:
            if name not in source.names:
                raise BadInputError(
                    f"no column `{name}`",
                    key="--columns",
                    place=Place(source.path),
                    expected=choices(source.names),
                    remedy=did_you_mean(name, source.names),
                )


def _run(
    config: Config, model: Production, request: Mapping[str, Any]
) -> tuple[dict[str, Any], float]:
    """Runs the process that predicts; returns its answer, and seconds."""
    started = time.time()
    with _shown() as path, LiveView(path), worker_process.log_kept_back():
        run_id = f"of model version {model.version}"
        about = {"pipeline": config.name, "run_id": run_id, "nodes": [_NODE]}
        events.emit("run_started", **about)
        events.emit("node_started", node=_NODE)
        events.set_node(_NODE)
        answer = worker_process.run(
            _WORKER, request, name="predict", env=_environment(config, request)
        )
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


def _environment(config: Config, request: Mapping[str, Any]) -> dict[str, str]:
    engine, output = engine_of(config), request["folder"]["path"]
    if engine.runner != "direct" and filesystems.is_remote(output):
        key = request["folder"]["key"]
        engine = dataclasses.replace(
            engine, exchange=f"{output}/.predicting-{key}/sent"
        )
    here = WorkloadPaths(folder=str(config.folder), plugins=config.plugins)
    return {
        **quiet.environment(),
        **worker_process.TENSORFLOW,
        **worker_process.ONE_THREAD,
        **worker_process.NO_GPU,
        **engine.to_environment(),
        **here.to_environment(),
    }


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
