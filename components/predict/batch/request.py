"""The request of a command or a node to predict files, and the process that does so."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from strategos.components import errors, worker_process
from strategos.components.data_files import shards, spans
from strategos.components.data_files.sources.reading import Reading
from strategos.components.errors import BadInputError, Place, UserError
from strategos.components.files import digests, filesystems, storage
from strategos.components.predict.batch.folder import OutputFolder
from strategos.components.predict.rows import Columns
from strategos.components.shards.engine import Engine
from strategos.components.wording import choices, did_you_mean

BATCH_SIZE = 4096
_WORKER = "strategos.components.predict.batch.process"


@dataclasses.dataclass(frozen=True)
class Job:
    """Files to predict with a model.

    Attributes:
      pipeline: The pipeline's name.
      files: The data files in order, as absolute paths or URLs.
      columns: The columns to copy.
      format: A name in `FORMATS`.
      batch_size: Rows that the model predicts at once, at most.
      bad_rows: How bad rows are handled; the rest is as the model has it.
      version: The pushed version of the model; None for a model that is not pushed.
      path: Path or URL of that version, for the manifest; None without one.
    """

    pipeline: str
    files: Sequence[str]
    columns: Sequence[str]
    format: str
    batch_size: int
    bad_rows: Reading
    version: int | None
    path: str | None

    @property
    def suffix(self) -> str:
        """End of the names of the files of predictions."""
        return f".{self.format}"

    def request(self, local: str, memo: Path | None) -> tuple[dict[str, Any], str]:
        """The request to `process.predict`, but for its folder.

        Args:
          local: The local folder of the model.
          memo: File that caches digests of data files; None for none.

        Returns:
          The request, and a hash of all that the predictions depend on.

        Raises:
          BadInputError: A data file cannot be read.
        """
        request = {
            "files": list(self.files),
            "reading": self._reading(local),
            "columns": list(self.columns),
            "format": self.format,
            "batch_size": self.batch_size,
        }
        about = {
            "strategos": metadata.version("strategos"),
            "pipeline": self.pipeline,
            "model": {
                "version": self.version,
                "path": self.path,
                "sha256": _digest_of_model(local),
            },
            "data": _described(self.files, memo),
            "format": self.format,
            "copied": request["columns"],
        }
        # Other code may write other bytes; the memory allowed or the workers do not
        # count.
        code = digests.of_sources(Path(shards.__file__).parents[1])
        hashed = json.dumps([request, about, code, _stack()], sort_keys=True)
        key = hashlib.sha256(hashed.encode()).hexdigest()[:16]
        now = datetime.datetime.now(datetime.timezone.utc)
        created = now.isoformat(timespec="seconds")
        manifest = {"created": created, **about}
        return {**request, "model": local, "manifest": manifest}, key

    def check_columns(self, local: str) -> None:
        """Rejects files that lack a column, as far as their headers tell.

        Args:
          local: The local folder of the model.

        Raises:
          BadInputError: Names the file and its columns.
        """
        columns = Columns.of(Path(local))
        reading = Reading.from_json(self._reading(local))
        span = spans.Span(0, None, None, tuple(self.files))
        try:
            opened = [source for _, source in shards.open_files([span], reading)]
        except UserError as error:
            described = {**error.to_json(), "type": BadInputError.__name__}
            raise errors.from_json(described) from error
        for source in opened:
            if source.open_ended:
                continue
            columns.check_names(source.path, source.names)
            for name in self.columns:
                if name not in source.names:
                    raise BadInputError(
                        f"no column `{name}`",
                        key="--columns",
                        place=Place(source.path),
                        expected=choices(source.names),
                        remedy=did_you_mean(name, source.names),
                    )

    def _reading(self, local: str) -> str:
        reading = dataclasses.replace(
            Columns.of(Path(local)).reading,
            on_bad_row=self.bad_rows.on_bad_row,
            max_bad_fraction=self.bad_rows.max_bad_fraction,
            extra_columns="ignore",
        )
        return reading.to_json()


def start(
    request: Mapping[str, Any],
    folder: OutputFolder,
    engine: Engine,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Runs the process that predicts; returns its answer.

    Args:
      request: From `Job.request`.
      folder: Gets the predictions.
      engine: Works on the shards.
      environment: Further variables for the process.

    Raises:
      UserError: As `process.predict`.
    """
    if engine.runner != "direct" and filesystems.is_remote(folder.path):
        engine = dataclasses.replace(engine, exchange=f"{folder.staging}/sent")
    return worker_process.run(
        _WORKER,
        {**request, "folder": dataclasses.asdict(folder)},
        name="predict",
        env={
            **environment,
            **worker_process.TENSORFLOW,
            **worker_process.ONE_THREAD,
            **worker_process.NO_GPU,
            **engine.to_environment(),
        },
    )


def _stack() -> list[str]:
    return [f"{x} {metadata.version(x)}" for x in ("tensorflow", "pyarrow")]


def _digest_of_model(folder: str) -> str:
    """SHA-256 of the names and contents of all files of a SavedModel."""
    paths = sorted(str(x) for x in Path(folder).rglob("*") if x.is_file())
    digest = hashlib.sha256()
    for path, content in zip(paths, digests.digests(paths), strict=True):
        digest.update(f"{os.path.relpath(path, folder)}\0{content}\0".encode())
    return digest.hexdigest()


def _described(files: Sequence[str], memo: Path | None) -> list[dict[str, Any]]:
    """Path, size and digest of each data file."""
    try:
        hashes: list[str] = []
        for remote in (False, True):
            some = [x for x in files if filesystems.is_remote(x) == remote]
            hashes += digests.digests(some, memo) if some else []
        statuses = [storage.statuses([path])[0] for path in files]
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise BadInputError(reason, place=Place(str(error.filename))) from error
    local = [x for x in files if not filesystems.is_remote(x)]
    order = [*local, *(x for x in files if filesystems.is_remote(x))]
    by_path = dict(zip(order, hashes, strict=True))
    return [
        {"path": path, "bytes": status.size, "sha256": by_path[path]}
        for path, status in zip(files, statuses, strict=True)
    ]
