"""Measures new spans for a decision to retrain, once for each span and model."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import worker_process
from strategos.components.data_files import spans
from strategos.components.data_files.spans import Span
from strategos.components.errors import UserError, first_line
from strategos.components.files import commit, storage
from strategos.components.span_validator import FOLDER_VARIABLE
from strategos.pipeline.plan import caching, plugins
from strategos.pipeline.plan.span_preview import Preview
from strategos.pipeline.root.state import file_hashes, make_state, state_folder

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config

_WORKER = "strategos.components.span_validator.preview_process"
_QUIET = {"PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "3"}  # of imports


@dataclasses.dataclass(frozen=True)
class ModelInProduction:
    """The model in production.

    Attributes:
      path: Its folder.
      spans: Numbers of the spans that it was trained on.
      metrics: Metrics of its own evaluation.
    """

    path: str
    spans: Sequence[int]
    metrics: Mapping[str, float]


def measure(
    config: Config, spans: Sequence[Span], model: ModelInProduction
) -> dict[int, Preview]:
    """Measures the spans newer than all spans of the model in production, by number.

    Measurements are kept in the local state of the root, so that a span is measured
    once for each model in production.

    Args:
      config: The effective settings.
      spans: All spans, ascending by number.
      model: The model in production.
    """
    schedule = config.schedule
    if schedule is None or not (schedule.drift or schedule.metrics):
        return {}
    known = [span for span in spans if span.number in model.spans]
    reference = known[-1] if known and schedule.drift else None
    return {
        span.number: _preview(config, span, reference, model)
        for span in spans
        if span.number > max(model.spans, default=-1)
    }


def _preview(
    config: Config, span: Span, reference: Span | None, model: ModelInProduction
) -> Preview:
    request = _request(config, span, reference, model)
    memo = file_hashes(config.run.root)
    files = [spans.fingerprint([each], memo) for each in (span, reference) if each]
    schema = config.schema_.file
    content = storage.read(schema).hex() if schema else ""
    # A version that was removed may have left its number to another model.
    weights = caching.weights_by_content(model.path, memo)
    parts = [request, files, content, weights, *_code(config)]
    text = json.dumps(parts, sort_keys=True)
    folder = state_folder(config.run.root) / "span-statistics"
    kept = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if kept.is_file():
        os.utime(kept)  # `strategos clean` goes by the last use
        answer = json.loads(kept.read_text())
    else:
        try:
            answer = _measured(request, folder)
        except worker_process.WorkerError as error:  # perhaps a kill: not kept
            answer = {"problem": first_line(error)}
        else:
            make_state(folder)
            commit.write(kept, json.dumps(answer))
    usual = dict(model.metrics)
    number = reference.number if reference else None
    return Preview(**answer, reference=number, usual=usual)


def _code(config: Config) -> list[str]:
    """The versions of the code that measures spans: the stack, and plug-ins."""
    own = plugins.readers(config), plugins.metrics(config)
    return [caching.stack_versions(), *map(plugins.versions, own)]


def _request(
    config: Config, span: Span, reference: Span | None, model: ModelInProduction
) -> dict[str, Any]:
    wanted = sorted(config.schedule.metrics) if config.schedule else []
    drift = config.schedule.drift if config.schedule else None
    return {
        "pattern": config.data.examples,
        "schema": config.schema_.file or "",
        "null_values": config.data.null_values,
        "reading": config.data.reading.to_json(),
        "span": [span.number, span.version],
        "reference": [reference.number, reference.version] if reference else None,
        "drift": drift.model_dump() if drift else None,
        "model": model.path if wanted else None,
        "label": config.label,
        "weight": config.weight,
        "task": config.evaluator.task if config.evaluator else "",
        "from_logits": config.evaluator.from_logits if config.evaluator else None,
        "query": config.evaluator.query if config.evaluator else None,
        "metrics": wanted,
    }


def _measured(request: Mapping[str, Any], kept: Path) -> dict[str, Any]:
    env = {**worker_process.TENSORFLOW, **_QUIET, FOLDER_VARIABLE: str(kept)}
    with tempfile.TemporaryDirectory() as folder:
        request_in_folder = {**request, "folder": folder}
        try:
            return worker_process.run(
                _WORKER, request_in_folder, name="preview", env=env
            )
        except UserError as error:
            return {"problem": error.headline}
