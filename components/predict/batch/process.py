"""Predicts the rows of files: the work of `strategos predict --output`.

`python -m strategos.components.predict.batch.process`, which the command starts after
all checks that need no TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import fork_server
from strategos.components.data_files.pieces import Shard
from strategos.components.data_files.sources import Reading
from strategos.components.errors import BadInputError, UserError
from strategos.components.files import exchange, full_disk
from strategos.components.predict import model
from strategos.components.predict.batch.folder import OutputFolder
from strategos.components.predict.rows import Columns
from strategos.components.shards import progress
from strategos.components.shards.engine import Engine
from strategos.components.worker_process import serve

if TYPE_CHECKING:
    from strategos.components.data_files.shards import ShardRunner
    from strategos.components.predict.batch.shard import Predicted, PredictShard


def predict(request: dict[str, Any]) -> dict[str, Any]:
    """Predicts all rows of the files.

    Args:
      request: `files`, absolute paths or URLs in order; `reading` of the files, as
        JSON; `model`, a local folder; `columns` to copy; `format`; `batch_size`;
        `folder`, the fields of an `OutputFolder`; `manifest`, all that the command
        knows for the manifest.

    Returns:
      `rows`, `rejected` and `files`, numbers of each.

    Raises:
      UserError: A file or a row cannot be read or predicted, or the folder cannot be
        written. No file is published.
    """
    model.prepare()
    fork_server.start()
    folder = OutputFolder(**request["folder"])
    try:
        return _Prediction(request, folder).run()
    except OSError as error:
        if not full_disk.is_reported(str(error)):
            raise
        raise _full(error, folder) from error
    except BadInputError:  # other data have another key
        folder.discard()
        raise


def _full(error: OSError, folder: OutputFolder) -> UserError:
    """The error of a full disk, or of a limit on files."""
    what = f"no space left in {folder.path}, {full_disk.free(folder.path)}"
    limit = full_disk.limit_of(str(error))
    if limit is not None:
        what = f"a file may not exceed {limit:,} bytes here, by `ulimit -f`"
    return UserError(
        what,
        key="--output",
        remedy="Make room and start the same command again: complete files are kept.",
    )


class _Prediction:
    """One request."""

    def __init__(self, request: dict[str, Any], folder: OutputFolder):
        self._request, self._folder = request, folder
        self._engine = Engine.from_environment()
        columns = Columns.of(Path(request["model"]))
        decimal = columns.reading.csv.decimal
        self._columns = dataclasses.replace(columns, decimal=decimal)

    def run(self) -> dict[str, Any]:
        """See `predict`."""
        from strategos.components.data_files import shards
        from strategos.components.data_files.spans import Span

        files = tuple(self._request["files"])
        reading = Reading.from_json(self._request["reading"])
        opened = shards.open_files([Span(0, None, None, files)], reading)
        staging = self._engine.exchange or self._folder.staging
        runner = shards.ShardRunner(self._engine, staging)
        data = runner.cut(files[0], opened)
        total = _rows(data)
        progress.begin(total)
        with exchange.sent(self._engine.exchange, self._request["model"]) as sent:
            work = self._work(runner, data, sent)
            merge = _Merge(len(data))
            done: Predicted = runner.fold(data, work, merge)
        rows = sum(done.files)
        progress.end(rows + done.rejected.rows)
        done.rejected.check(rows + done.rejected.rows, reading.max_bad_fraction)
        self._check(done, total, files)
        self._publish(done, work)
        return {"rows": rows, "rejected": done.rejected.rows, "files": len(data)}

    def _work(
        self, runner: ShardRunner, data: Sequence[Shard], sent: str
    ) -> PredictShard:
        from strategos.components.predict.batch import copied, outputs
        from strategos.components.predict.batch.formats import FORMATS
        from strategos.components.predict.batch.shard import PredictShard

        request, folder = self._request, self._request["model"]
        loaded = model.Model(Path(folder))
        signature_outputs = outputs.of_signature(
            loaded.outputs, self._columns.named, folder
        )
        work = PredictShard(
            model=sent,
            columns=self._columns,
            outputs=signature_outputs,
            copied=copied.types_of(runner, data, request["columns"]),
            format=request["format"],
            batch_size=request["batch_size"],
            folder=self._folder,
        )
        fields = FORMATS[work.format].fields(work.schema)
        names = [each.name for each in fields]
        for name in names:
            if names.count(name) > 1:
                raise BadInputError(
                    f"the predictions have a column `{name}`, too",
                    key="--columns",
                    received=name,
                    remedy="Leave it out, or rename it in the files.",
                )
        return work

    def _check(self, done: Predicted, total: int | None, files: Sequence[str]) -> None:
        """Rejects files without a column that only now all rows are known to lack."""
        if done.names:
            where = files[0] if len(files) == 1 else f"all of {len(files)} files"
            self._columns.check_names(where, done.names)
        parsed = sum(done.files) + done.rejected.rows - done.rejected.malformed
        if total is not None and parsed != total:
            raise RuntimeError(f"predicted {parsed} of {total} rows")

    def _publish(self, done: Predicted, work: PredictShard) -> None:
        from strategos.components.predict.batch.formats import FORMATS

        fields = FORMATS[work.format].fields(work.schema)
        self._folder.publish(
            len(done.files),
            {
                **self._request["manifest"],
                "rows": sum(done.files),
                "rejected": done.rejected.rows,
                "columns": [{"name": x.name, "type": str(x.type)} for x in fields],
                "classes": list(self._columns.classes),
                **({"heads": dict(heads)} if (heads := self._columns.heads) else {}),
                "files": [{"rows": rows} for rows in done.files],
            },
        )


class _Merge:
    """Merges the results of neighbours, and reports how many shards are complete."""

    def __init__(self, shards: int):
        self._shards = shards

    def __call__(self, earlier: Predicted, later: Predicted) -> Predicted:
        merged = earlier.merge(later)
        progress.say(f"{len(merged.files)} of {self._shards} files")
        return merged


def _rows(data: Sequence[Shard]) -> int | None:
    """The number of rows, if all files declare it; else it takes to read them."""
    pieces = [piece for shard in data for piece in shard.pieces]
    if not all(piece.source.knows_rows for piece in pieces):
        return None
    return sum(piece.source.rows_of(piece.part) for piece in pieces)


if __name__ == "__main__":
    serve(predict)
