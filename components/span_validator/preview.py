"""Measures a new span before a run: its distance from known data, a model's metrics.

`python -m strategos.components.span_validator.preview`, started by `strategos retrain`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strategos.components.worker_process import serve

_NAME = "live"


def preview(request: dict[str, Any]) -> dict[str, Any]:
    """Measures one span.

    Args:
      request: `pattern`, `schema` ("" for none) and `null_values` of the data; `folder`
        for temporary files; `span`, as [number, version]; `reference`, the span to
        compare with, or None; `model`, the path or URL of a SavedModel, or None;
        `label`, `task` and `metrics` of its evaluation.

    Returns:
      `distances` by feature, and `metrics` by name (None where undefined).

    Raises:
      UserError: The span cannot be read, or the model cannot be evaluated on it.
    """
    from strategos.components.example_gen import spans
    from strategos.components.shards.engine import Engine
    from strategos.components.span_validator import checks, measure

    reader = measure.Reader(
        Engine(),
        request["pattern"],
        request["schema"],
        tuple(request["null_values"]),
        request["folder"],
    )
    wanted = [each for each in (request["span"], request["reference"]) if each]
    span, *reference = spans.resolve_spans(reader.pattern, wanted)
    distances: dict[str, float] = {}
    if reference:
        found, other = reader.of(span), reader.of(reference[0])
        limits = dict.fromkeys(measure.types_of(found), 1.0)
        distances = checks.distances(found, other, limits)
    metrics = _metrics(reader, span, request) if request["model"] else {}
    return {"distances": distances, "metrics": metrics}


def _metrics(
    reader: Any, span: Any, request: Mapping[str, Any]
) -> dict[str, float | None]:
    """The Evaluator's metrics of a model on all rows of a span."""
    import tensorflow as tf

    from strategos.components.evaluator import scoring
    from strategos.components.evaluator.models import Location
    from strategos.components.example_gen.columns import Kind
    from strategos.components.pusher import targets
    from strategos.components.shards.fold import fold

    types = {Kind.INT: tf.int64, Kind.FLOAT: tf.float32, Kind.BYTES: tf.string}
    files, kind = _written(reader, span, request["label"])
    question = scoring.Question(
        request["task"],
        request["metrics"],
        request["label"],
        (),
        {request["label"]: types[kind]},
    )
    with targets.local(request["model"]) as model:
        live = (Location(_NAME, "model in production", model),)
        scored = fold(
            reader.engine,
            scoring.shards(files),
            scoring.Scorer(question, live),
            scoring.Scored.merge,
            reader.folder,
        )
    scoring.check(scored.sums, question)
    values = scored.sums.metrics(_NAME)[0].metrics
    return {name: v if math.isfinite(v) else None for name, v in values.items()}


def _written(reader: Any, span: Any, label: str) -> tuple[Sequence[str], Any]:
    """Writes all rows of a span as examples; the files, and the label's kind."""
    from strategos.components.example_gen import shards, writing
    from strategos.components.example_gen.splitting import Splitter

    runner = shards.Runner(reader.engine, reader.folder)
    kinds, nulls, data = reader.kinds(runner, span)
    work = writing.WriteShard(
        examples=reader.folder,
        kinds=kinds,
        floats={},
        nulls=nulls,
        splitter=Splitter((), 1, 1, frozenset({span.number})),
        label=label,
        lists=frozenset(),
    )
    runner.fold(data, work, writing.Outcome.merge).publish(reader.folder)
    files = Path(reader.folder, "Split-eval").iterdir()
    return sorted(map(str, files)), kinds[label]


if __name__ == "__main__":
    serve(preview)
