"""A gate of one's own: no group of flights is predicted much worse than another."""

import json
from pathlib import Path

from tfx.dsl.component.experimental.annotations import InputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import ModelEvaluation

from strategos import GateStoppedError


@component
def FairnessGate(
    evaluation: InputArtifact[ModelEvaluation],
    feature: Parameter[str],
    metric: Parameter[str] = "auc",
    largest_gap: Parameter[float] = 0.1,
    min_examples: Parameter[int] = 500,
):
    """Stops the run if `metric` differs too much between two slices of `feature`."""
    summary = json.loads(Path(evaluation.uri, "summary.json").read_text())
    values = {
        each["value"]: each["metrics"][metric]
        for each in summary["slices"]
        if each["feature"] == feature and each["examples"] >= min_examples
        if each["metrics"][metric] is not None  # one label in all of the slice
    }
    if not values:
        raise GateStoppedError(
            f"no slice of `{feature}` has `{metric}` on {min_examples} rows. Add the "
            "feature to evaluator.slices, or lower min_examples."
        )
    worst, best = min(values, key=values.get), max(values, key=values.get)
    gap = values[best] - values[worst]
    if gap > largest_gap:
        raise GateStoppedError(
            f"{metric} differs by {gap:.3f} between {feature}={best} "
            f"({values[best]:.3f}) and {feature}={worst} ({values[worst]:.3f}); "
            f"at most {largest_gap} is allowed."
        )
