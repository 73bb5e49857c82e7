"""Checks that the data have the columns that the settings name, in the first file."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from strategos.components.data_files import sources
from strategos.components.data_files.sources.tfrecord_source import STEP_LENGTHS
from strategos.components.errors import UserError, required
from strategos.components.evaluation import trials
from strategos.components.evaluation.heads import naming
from strategos.components.evaluation.slices.slicing import (
    CLASS,
    Slicing,
    part_of,
    slicings,
)
from strategos.components.targets.label import Label
from strategos.components.user_code import modules
from strategos.components.wording import choices, did_you_mean
from strategos.pipeline.checks import ranking
from strategos.pipeline.config.problems import shown
from strategos.pipeline.config.sections import Config

if TYPE_CHECKING:
    import pyarrow as pa

_MADE = ("label", "weight")  # columns, or features that `preprocessing_fn` makes


def column_problems(
    config: Config, files: list[str], schema: list[str]
) -> Iterator[UserError]:
    """Yields a problem for each column that a setting names and the data lack.

    Args:
      config: The effective settings.
      files: The data files; the first one is read. Empty if no data exist yet.
      schema: The features of the curated schema; empty without one.
    """
    made = _MadeNames(config)
    if (config.target.outputs or config.target.reconstructs) and made.is_of_tfx:
        what = "several heads" if config.target.outputs else "features to reconstruct"
        yield config.problem(
            "label",
            f"{what}, and `run_fn(fn_args)` reads one label",
            remedy="Let `build_model(context)` take the place of `run_fn`.",
        )
    targets = [("label", name) for name in dict.fromkeys(config.target.columns)]
    targets.append(("weight", config.weight or ""))
    named = [pair for pair in targets if pair[1]]
    named += [("data.split.keys", name) for name in config.data.split.keys]
    if config.data.split.column:
        named.append(("data.split.column", config.data.split.column))
    named += [("data.missing", name) for name in config.data.missing]
    if config.gates:
        named += [("gates.features", name) for name in config.gates.features]
        keys = [name for key in config.gates.keys.values() for name in key.columns]
        named += [("gates.keys", name) for name in dict.fromkeys(keys)]
    if config.evaluator:
        section = config.evaluator.model_dump()
        sliced = [name for each in slicings(section) for name in each.features]
        named += [("evaluator.slices", name) for name in dict.fromkeys(sliced)]
        if config.evaluator.query:
            named.append(("evaluator.query", config.evaluator.query))
    if config.statistics:
        sliced = [
            x for each in config.statistics.slices for x in Slicing.of(each).features
        ]
        named += [("statistics.slices", name) for name in dict.fromkeys(sliced)]
        if config.statistics.weighted and config.weight:
            named.append(("statistics.weighted", config.weight))
    columns_of: dict[str, Sequence[str]] = {config.schema_.file or "": schema}
    for path in files[:1]:
        try:
            source = _first_with_rows(files, config.data.reading)
            path, rows = source.path, source.count_rows(1)
            names = source.names
            lengths = [("", f"{x}_lengths") for x in config.data.step_lengths]
            if not _all_known([*named, *lengths], names):
                names = source.fresh().every_name()
        except UserError as error:
            yield config.located(error, "data.examples")
            continue
        columns_of[path] = names
        yield from _step_lengths(config, files, source, names)
        if config.evaluator and rows:
            yield from _several_labels(config, source)
            yield from _two_parts(config, source)
            yield from ranking.problems(config, source)
        if rows:
            yield from _texts_in_bins(config, source)
        else:
            yield config.problem(
                "data.examples",
                f"{shown(path)} has a header but no row",
                remedy="Remove the file, or put the data there.",
            )
    yield from _own_metrics(config)
    for label in {*config.target.withheld} & {*config.data.split.keys}:
        yield config.problem(
            "data.split.keys",
            f"`{label}` is the label: all rows of one label would be in one split",
            remedy="Name a column that tells rows apart, such as a customer or a day.",
        )
    for path, columns in columns_of.items():
        known = any(name in columns for _, name in named)
        if not known and any(map(_is_number, columns)):
            yield _no_header(config, path, columns)
            continue
        for key, name in named:
            if columns and name not in columns and not (key in _MADE and name in made):
                yield _no_column(config, key, name, path, columns)


def _own_metrics(config: Config) -> Iterator[UserError]:
    """Yields a problem for each metric of a plug-in that is wrong on a few rows."""
    if not config.evaluator:
        return
    section = config.evaluator.model_dump()
    for own in naming.sections(section).values() or [section]:
        unmerged = trials.unmerged(own["metrics"], own["task"])
        for name, reason in unmerged.items():
            yield config.problem(
                "evaluator.metrics",
                f"`{name}` {reason}",
                remedy="Let `sums` give float64 [..., slices], and `merge` the sums of "
                "the rows of both parts.",
            )
        rest = [name for name in own["metrics"] if name not in unmerged]
        for name in trials.unweighted(rest, own["task"]) if config.weight else ():
            yield config.problem(
                "evaluator.metrics",
                f"`{name}` counts rows of any `weight` alike",
                remedy="Let its `sums` add up by `batch.total`, which multiplies "
                "by the weights, or use `batch.weight`; or remove the metric.",
            )


def _all_known(named: Sequence[tuple[str, str]], columns: Sequence[str]) -> bool:
    return all(name in columns for _, name in named)


def _step_lengths(
    config: Config, files: Sequence[str], source: sources.Source, names: Sequence[str]
) -> Iterator[UserError]:
    """Yields a problem for each of `data.step_lengths` that is no list of the data.

    Args:
      config: The effective settings.
      files: All data files; those of other formats than TFRecord have no such lists.
      source: The file that `names` is from.
      names: Its columns.
    """
    key, wanted = STEP_LENGTHS, config.data.step_lengths
    records = [path for path in files if _is_tfrecord(path)]
    if wanted and not records:
        yield config.problem(
            key,
            f"names lists of SequenceExamples in TFRecord files, and {shown(files[0])} "
            "is no such file",
            remedy="Remove it: a list of another format is one feature.",
        )
    for name in wanted if source.path in records else ():
        if f"{name}_lengths" not in names:
            is_one = " besides the feature of this name" if name in names else ""
            yield config.problem(
                key,
                f"{shown(source.path)} has no list `{name}`{is_one}",
                expected="a list of the SequenceExamples",
                remedy="" if name in names else did_you_mean(name, names),
            )


def _is_tfrecord(path: str) -> bool:
    return (sources.name_of(path) or "").startswith("tfrecord")


def _no_header(config: Config, path: str, columns: Sequence[str]) -> UserError:
    return config.problem(
        "data.examples",
        f"the first line of {shown(path)} holds values, not names of columns: "
        f"{choices(columns)}",
        remedy="Write a line with the columns' names before it.",
    )


def _is_number(text: str) -> bool:
    """Whether a text is a number as Python writes it."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _several_labels(config: Config, source: sources.Source) -> Iterator[UserError]:
    """Yields a problem for a column with several labels in a row among the first."""
    target, tasks = config.target, required(config.evaluator).task
    by_head = {"": tasks} if isinstance(tasks, str) else tasks
    for head, label in target.by_output.items():
        if label.is_several or not part_of(by_head[head]):
            yield from _of_several_values(config, source, label)


def _of_several_values(
    config: Config, source: sources.Source, label: Label
) -> Iterator[UserError]:
    remedy = "If these are the classes of a row, make 0 or 1 of each in "
    remedy += "`preprocessing_fn` and set `evaluator.task: multi_label`; else remove "
    remedy += "`evaluator`."
    if config.target.outputs:
        remedy = "Let each head learn a column of one value, or set its task to "
        remedy += "`multi_label` and make 0 or 1 of each class in `preprocessing_fn`."
    if label.is_several:
        remedy = "Name columns of one value, 0 or 1."
    for name in sorted({*label.columns} & {*source.lists}):
        if (most := _most_values(source, name)) > 1:
            yield config.problem(
                "label",
                f"`{name}` has up to {most} values a row in {shown(source.path)}, and "
                "`evaluator` compares one",
                remedy=remedy,
            )


def _most_values(source: sources.Source, name: str) -> int:
    import pyarrow.compute as pc

    lengths = pc.list_value_length(next(source.fresh().batches()).column(name))
    return int(pc.max(lengths).as_py() or 0)


def _two_parts(config: Config, source: sources.Source) -> Iterator[UserError]:
    """Yields a problem if the slices by class hide those of a column of that name."""
    evaluator = required(config.evaluator)
    part = part_of(evaluator.task)
    if part in evaluator.slices and part in source.names:
        task = "multi_label" if part == CLASS else "reconstruction"
        whose = "class of the label" if part == CLASS else "feature"
        yield config.problem(
            "evaluator.slices",
            f"`{part}` is a column of {shown(source.path)}, and for {task} the name of "
            f"the slices by {whose}",
            remedy="Rename the column, or remove it from `slices`.",
        )


def _texts_in_bins(config: Config, source: sources.Source) -> Iterator[UserError]:
    """Yields a problem for each feature in bins that the file declares as a text."""
    sliced = {}
    if config.evaluator:
        sliced["evaluator.slices"] = slicings(config.evaluator.model_dump())
    if config.statistics:
        own = [*map(Slicing.of, config.statistics.slices)]
        sliced["statistics.slices"] = own
    named = {
        (key, x): None for key, some in sliced.items() for y in some for x in y.parts
    }
    for key, part in named:
        declared = source.types.get(part.feature) if part.edges else None
        if declared is not None and _is_text(declared):
            yield config.problem(
                key,
                f"`{part.feature}` is a text in {shown(source.path)}, and bins are "
                "ranges of numbers",
                remedy="Remove its `bins`, to slice by each of its values.",
            )


def _is_text(declared: pa.DataType) -> bool:
    from strategos.components.data_files.values.arrow_types import is_text

    return is_text(declared)


def _first_with_rows(files: Sequence[str], reading: sources.Reading) -> sources.Source:
    """Opens the first file; the next one while its header says that it has no rows."""
    for path in files:
        source = sources.open_source(path, reading)
        if not source.is_empty:
            return source
    return sources.open_source(files[0], reading)


def _no_column(
    config: Config, key: str, name: str, path: str, columns: Sequence[str]
) -> UserError:
    remedy = did_you_mean(name, columns)
    spelled = next((c for c in columns if _alike(c, name)), None)
    if spelled is not None:
        remedy = f"Write `{spelled}` there: upper and lower case count."
        if spelled != spelled.strip():
            remedy = f"The header has {spelled!r}: remove the spaces in the file."
    message = f"{shown(path)} has no column `{name}`"
    if key == "statistics.weighted":
        message += ", the `weight`: rows get it in Transform only"
        remedy = "Name a column in `weight`, or remove `weighted`."
    return config.problem(key, message, expected=choices(columns), remedy=remedy)


def _alike(one: str, other: str) -> bool:
    """Whether two names differ only in case and outer spaces: `Label ` and `label`."""
    return one.strip().casefold() == other.strip().casefold()


class _MadeNames:
    """The names that `preprocessing_fn` may give to its features.

    Its texts, and two of them after one another, such as `tips` and `_xf`. A module for
    TFX's Trainer often imports its names: any name will do, and Trainer checks it.
    """

    def __init__(self, config: Config):
        folder = str(config.folder)
        self.is_of_tfx = modules.takes_fn_args(folder, config.trainer.module)
        self._texts = _texts_of(config, config.transform.module)

    def __contains__(self, name: str) -> bool:
        ends = {name[len(text) :] for text in self._texts if name.startswith(text)}
        return self.is_of_tfx or bool(ends & {"", *self._texts})


def _texts_of(config: Config, module: str) -> set[str]:
    """The string literals in a user module."""
    path = modules.find(str(config.folder), module)
    try:
        tree = ast.parse(path.read_bytes()) if path else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):
        return set()  # reported as a problem of the module
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {node.value for node in constants if isinstance(node.value, str)}
