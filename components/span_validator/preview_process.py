"""Measures a new span before a run: its distance from known data, a model's metrics.

`python -m strategos.components.span_validator.preview_process`, which
`strategos retrain` starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components.errors import UserError
from strategos.components.targets.label import Label
from strategos.components.wording import choices, did_you_mean
from strategos.components.worker_process import serve

if TYPE_CHECKING:
    from strategos.components.data_files.spans import Span
    from strategos.components.data_files.values.kinds import Kind
    from strategos.components.evaluation.inputs.models import Location
    from strategos.components.evaluation.scored import Scored
    from strategos.components.span_validator.measure import Reader

_NAME = "live"


def preview(request: dict[str, Any]) -> dict[str, Any]:
    """Measures one span.

    Args:
      request: `pattern`, `schema` ("" for none), `null_values` and `reading` of the
        data; `folder` for temporary files; `span`, as [number, version]; `reference`,
        the span to compare with, or None; `drift`, the bounds on distances; `model`,
        the path or URL of a SavedModel, or None; `label`, `task`, `metrics` and perhaps
        `weight`, `from_logits` and `query` of its evaluation.

    Returns:
      `distances` by feature; `chance`, what sampling explains, by feature beyond its
      bound; and `metrics` by name (None where undefined).

    Raises:
      UserError: The span cannot be read, or the model cannot be evaluated on it.
    """
    from strategos.components.data_files import spans
    from strategos.components.span_validator import checks, measure

    reader = reader_of(request)
    wanted = [each for each in (request["span"], request["reference"]) if each]
    span, *reference = spans.resolve_spans(reader.pattern, wanted)
    distances: dict[str, float] = {}
    chance: dict[str, float] = {}
    if reference:
        both = reader.of(span), reader.of(reference[0])
        limits = checks.limits_of(request["drift"], list(measure.types_of(both[0])))
        distances = checks.distances(*both, limits)
        chance = checks.beyond_chance(*both, distances, limits)
    metrics = _metrics(reader, span, request) if request["model"] else {}
    return {"distances": distances, "chance": chance, "metrics": metrics}


def _metrics(
    reader: Reader, span: Span, request: Mapping[str, Any]
) -> dict[str, float | None]:
    """The Evaluator's metrics of a model on all rows of a span."""
    from strategos.components.evaluation.heads import verdict
    from strategos.components.evaluation.inputs.models import Location
    from strategos.components.push_targets import targets

    evaluator = {"task": request["task"], "metrics": request["metrics"]}
    evaluator |= {key: request.get(key) for key in ("from_logits", "query")}
    with targets.local(request["model"]) as model:
        live = (Location(_NAME, "model in production", model),)
        read = request["label"], request.get("weight") or ""
        result = scored(reader, span, *read, evaluator, live)
    judgement = verdict.of(result, evaluator, request["label"], [_NAME])
    values = judgement.slices[0].metrics
    return {name: v if math.isfinite(v) else None for name, v in values.items()}


def reader_of(request: Mapping[str, Any]) -> Reader:
    """The reader of spans.

    Args:
      request: As for `preview`.
    """
    from strategos.components.data_files.sources import Reading
    from strategos.components.shards.engine import Engine
    from strategos.components.span_validator import measure

    nulls = tuple(request["null_values"])
    where = request["pattern"], request["schema"]
    reading = Reading.from_json(request.get("reading", ""))
    return measure.Reader(Engine(), *where, nulls, request["folder"], reading)


def scored(
    reader: Reader,
    span: Span,
    label: str,
    weight: str,
    evaluator: Mapping[str, Any],
    models: tuple[Location, ...],
) -> Scored:
    """Scores all rows of a span as the Evaluator does.

    Args:
      reader: The reader of spans.
      span: The span.
      label: The label, as `Label.text`.
      weight: Name of the column or feature that weights the rows; "" for none.
      evaluator: The section of the settings: task, metrics, slices, bounds.
      models: The models; see `scoring.Scorer`.

    Raises:
      UserError: The span cannot be read, has no such label, weight or slice, or a model
        cannot be evaluated on it.
    """
    import tensorflow as tf

    from strategos.components.data_files.values.kinds import Kind
    from strategos.components.evaluation import scoring
    from strategos.components.evaluation.inputs import rows, unfit
    from strategos.components.evaluation.slices.slicing import slicings

    types = {Kind.INT: tf.int64, Kind.FLOAT: tf.float32, Kind.BYTES: tf.string}
    columns = _kinds_of(models[0])
    known = {} if reader.schema_file else columns
    files, kinds = _written(reader, span, label, known)
    slices = sorted({name for each in slicings(evaluator) for name in each.features})
    targets = Label.of(label).withheld
    made = {name for name in (*targets, weight) if columns and name not in columns}
    wanted_by = [*(("label", name) for name in targets), ("weight", weight)]
    wanted_by += [("evaluator.slices", name) for name in slices]
    query = [evaluator["query"]] if evaluator.get("query") else []
    wanted_by += [("evaluator.query", name) for name in query]
    for key, name in wanted_by:
        if name and name not in kinds and name not in made:
            raise UserError(
                f"the span has no column `{name}`",
                key=key,
                expected=choices(sorted(kinds)),
                remedy=did_you_mean(name, kinds),
            )
    raw = [name for name in (*targets, weight) if name in kinds]
    wanted = {name: types[kinds[name]] for name in (*raw, *slices, *query)}
    question = rows.Question.of(evaluator, label, weight, wanted)
    scorer = scoring.Scorer(question, models)
    result = scoring.scored(reader.engine, files, scorer, reader.folder)
    unfit.check(result, question)
    return result


def _kinds_of(model: Location) -> dict[str, Kind]:
    """The kinds of the columns that a model was trained on, as far as known."""
    from strategos.components import exported
    from strategos.components.data_files.values.kinds import Kind
    from strategos.components.schema_file import read_schema

    schema = Path(model.path, exported.SCHEMA)
    if not schema.is_file():
        return {}
    # schema_pb2.FeatureType
    types = {1: Kind.BYTES, 2: Kind.INT, 3: Kind.FLOAT}
    features = read_schema(str(schema)).feature
    return {each.name: types[each.type] for each in features if each.type in types}


def _written(
    reader: Reader, span: Span, label: str, known: Mapping[str, Kind]
) -> tuple[Sequence[str], Mapping[str, Kind]]:
    """Writes a span's rows with a label as examples; files, and the kinds of columns.

    Args:
      reader: The reader of spans.
      span: The span.
      label: The label, as `Label.text`.
      known: Kinds of columns, in place of kinds inferred from this span alone: e.g. its
        numbers in a FLOAT column may all be whole.
    """
    from strategos.components.data_files import shards, writing
    from strategos.components.data_files.splitting import Splitter
    from strategos.components.data_files.values.kinds import Kind

    runner = shards.ShardRunner(reader.engine, reader.folder)
    kinds, nulls, data = reader.kinds(runner, span)
    kinds = {n: k if k == Kind.BYTES else known.get(n, k) for n, k in kinds.items()}
    work = writing.WriteShard(
        examples=reader.folder,
        kinds=kinds,
        floats={},
        nulls=nulls,
        splitter=Splitter((), 1, 1, frozenset({span.number})),
        label=label,
        lists=frozenset(kinds),
        drops_unlabelled=True,
    )
    runner.fold(data, work, writing.Outcome.merge).publish(reader.folder)
    files = Path(reader.folder, "Split-eval").iterdir()
    return sorted(map(str, files)), kinds


if __name__ == "__main__":
    serve(preview)
