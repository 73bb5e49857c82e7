"""Judges a canary on the rows of a good span, beside the model in production.

`python -m strategos.components.span_validator.judging`, started by `strategos canary
promote`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from strategos.components.data_files.span_checks import describe
from strategos.components.span_validator import preview_process
from strategos.components.worker_process import serve

_CANARY, _LIVE = "canary", "live"


def judge(request: dict[str, Any]) -> dict[str, Any]:
    """Judges a model by the Evaluator's checks, if the span passes the gates.

    Args:
      request: `pattern`, `schema` ("" for none), `null_values` and `reading` of the
        data; `folder` for temporary files; `span`, as [number, version]; `usual`, the
        spans before it; `gates`, the section of the settings with `on_anomaly`, or
        None; `others`, see `usual_spans.judged`; `label`; `weight`; `evaluator`, the
        section of the settings; `canary` and `live`, the paths or URLs of SavedModels;
        `live` may be None.

    Returns:
      Result of `summary.summarize`: the metrics, the checks and the verdict. For a span
      that a gate would stop, only `at_fault`: a line for each failed check.

    Raises:
      UserError: The span cannot be read, or a model cannot be evaluated on it.
    """
    from strategos.components.data_files import spans
    from strategos.components.evaluation.heads import verdict
    from strategos.components.evaluation.inputs.models import Location
    from strategos.components.push_targets import targets
    from strategos.components.span_validator import usual_spans

    reader, evaluator = preview_process.reader_of(request), request["evaluator"]
    (span,) = spans.resolve_spans(reader.pattern, [request["span"]])
    if request["gates"]:
        compared = {"judged": [request["span"]], "usual": request["usual"]}
        gates = request["gates"], request["others"]
        checks = usual_spans.judged(reader, compared, *gates)
        failed = [dataclasses.asdict(check) for check in checks if not check.ok]
        if failed:
            lines = [f"{check['gate']}: {describe(check)}" for check in failed]
            return {"at_fault": lines}
    roles = {_CANARY: "canary", _LIVE: "model in production"}
    with contextlib.ExitStack() as copies:
        models = [
            Location(
                name,
                role,
                copies.enter_context(targets.local(request[name])),
                optional=name == _LIVE,
            )
            for name, role in roles.items()
            if request[name]
        ]
        read = request["label"], request.get("weight") or ""
        arguments = reader, span, *read, evaluator, tuple(models)
        scored = preview_process.scored(*arguments)
    incomparable = scored.unusable.get(_LIVE, "")
    usable = [model.name for model in models if model.name not in scored.unusable]
    judgement = verdict.of(scored, evaluator, request["label"], usable, incomparable)
    return judgement.summary


if __name__ == "__main__":
    serve(judge)
