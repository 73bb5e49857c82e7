"""Checks of the files that `predict` names, and of the folder for the predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from strategos.components.data_files import predicted_spans, sources, spans
from strategos.components.errors import UserError
from strategos.components.files import object_stores, patterns
from strategos.components.files.filesystems import is_remote, unknown
from strategos.components.wording import choices, did_you_mean
from strategos.pipeline.config.data_files.predict import Predict
from strategos.pipeline.config.problems import shown
from strategos.pipeline.config.sections import Config

_SUFFIXES = (".parquet", ".csv", ".jsonl", ".tfrecord")


def check(
    config: Config, seen: Callable[[str], bool] | None = None
) -> Iterator[UserError]:
    """Yields problems of the section `predict`.

    Args:
      config: The effective settings.
      seen: As for `files.check`.
    """
    section = config.predict
    if not section:
        return
    yield from _folder_problems(config, section.to.rstrip("/"))
    if cause := unknown(section.data):
        yield config.problem("predict.data", cause)
    elif not (seen and (is_remote(section.data) or seen(section.data))):
        yield from _file_problems(config, section)


def _file_problems(config: Config, section: Predict) -> Iterator[UserError]:
    try:
        selection = predicted_spans.chosen(section.data, section.spans)
    except spans.NoFilesError as error:
        if not config.data.maker:  # which may make these files, too
            yield config.located(error)
        return
    except UserError as error:
        yield config.located(error)
        return
    files = [path for span in selection for path in span.files]
    for path in files:
        if not sources.name_of(path):
            yield config.problem(
                "predict.data",
                f"{shown(path)} has none of the supported formats",
                expected=", ".join(sources.suffixes()),
                remedy="Narrow the pattern, or convert the file.",
            )
            return
    each = object_stores.each(lambda path: _of_file(config, section, path), files)
    problems = [problem for problem in each if problem]
    yield from problems
    reading = config.data.reading
    if not problems and all(sources.open_source(x, reading).is_empty for x in files):
        yield config.problem(
            "predict.data",
            "no file has a row",
            received=choices(map(shown, files)),
            remedy="Put the data there.",
        )


def _of_file(config: Config, section: Predict, path: str) -> UserError | None:
    """The problem of a file that cannot be read or lacks a column to copy."""
    try:
        sources.check(path, config.data.reading)
        source = sources.open_source(path, config.data.reading)
    except UserError as error:
        return config.located(error, "predict.data")
    is_csv = (sources.name_of(path) or "").startswith("csv")
    if is_csv and not source.count_rows(1):
        message = f"{shown(path)} has a header but no row"
        remedy = "Remove the file, or put the data there."
        return config.problem("predict.data", message, remedy=remedy)
    for name in () if source.open_ended else section.columns:
        if name not in source.names:
            return config.problem(
                "predict.columns",
                f"{shown(path)} has no column `{name}`",
                expected=choices(source.names),
                remedy=did_you_mean(name, source.names),
            )
    return None


def _folder_problems(config: Config, to: str) -> Iterator[UserError]:
    """Yields problems of predictions that other data or models would be mixed with."""
    remedy = "Name another folder."
    file = f"{to}/20260101-000000-0123456789abcdef/predictions-00000-of-00001"
    named = {"data.examples": config.data.examples, **config.other_data}
    for key, pattern in named.items():
        if any(patterns.to_regex(pattern).fullmatch(file + x) for x in _SUFFIXES):
            message = f"`{key}` matches files in it, and would read the predictions"
            yield config.problem("predict.to", message, received=to, remedy=remedy)
    folders = {"run.root": config.run.root}
    folders |= config.pusher.folders if config.pusher else {}
    for key, folder in folders.items():
        folder = f"{folder.rstrip('/')}/"
        if f"{to}/".startswith(folder) or folder.startswith(f"{to}/"):
            message = f"predictions must be apart from {folder}, `{key}`"
            yield config.problem("predict.to", message, received=to, remedy=remedy)
