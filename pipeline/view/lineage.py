"""Prints a lineage as a tree: the model at the root, the data at the leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from strategos.components import node_ids
from strategos.components.evaluation.metrics import measured
from strategos.components.evaluation.slices.slicing import Slicing
from strategos.components.files import filesystems
from strategos.components.wording import cut, duration
from strategos.pipeline.history import models
from strategos.pipeline.history.lineage import Lineage, LineageStep
from strategos.pipeline.view import terminal

_FILES = 4  # Data files that are listed one by one.
_SHOWN = 80  # Characters shown of a third-party component's parameter.
_VERDICTS = {"ModelBlessing", "ModelEvaluation", "InfraBlessing"}
_Facts = Mapping[str, Any]


def show(lineage: Lineage, console: Console | None = None) -> None:
    """Prints a lineage.

    Args:
      lineage: The lineage.
      console: Where to print; standard output by default.
    """
    console = console or terminal.console()
    terminal.show(console, render(lineage))


def render(lineage: Lineage) -> Tree:
    """Converts a lineage to a tree that contains each step once."""
    # To be copied: never broken into lines.
    root = Text(
        filesystems.short(lineage.model), "bold", no_wrap=True, overflow="ignore"
    )
    made = "pushed" if lineage.version else "made"
    about = f"{made} {terminal.moment(lineage.made_at)} by {lineage.pipeline}"
    root.append(f"\n{about}, run {lineage.run_id}", style="not bold dim")
    tree = Tree(root, guide_style="dim")
    steps = {step.execution: step for step in lineage.steps}
    if lineage.steps:
        _grow(tree, steps.pop(lineage.steps[-1].execution), steps)
    return tree


def _grow(tree: Tree, step: LineageStep, steps: dict[int, LineageStep]) -> None:
    """Adds a step, and below it its inputs, as far as these are still in `steps`.

    An input shared by two steps is shown under the step nearer to the data, e.g. the
    schema under Transform, not under Trainer. Steps that only judge come last
    (Evaluator, InfraValidator).
    """
    branch = tree.add(_describe(step))
    inputs = [steps[each] for each in step.inputs if each in steps]
    makers = [each for each in inputs if not _only_judges(each)]
    left = {needed for each in makers for needed in each.inputs}
    inputs = [each for each in inputs if each.execution not in left]
    for each in inputs:
        del steps[each.execution]
    for each in sorted(inputs, key=_only_judges):
        _grow(branch, each, steps)


def _only_judges(step: LineageStep) -> bool:
    return {output.type for output in step.outputs} <= _VERDICTS


def _describe(step: LineageStep) -> Text:
    text = Text(step.node, style="bold")
    about = f"  {duration(step.seconds)}"
    if step.reused:
        about += f", reused from run {step.run_id}"
    text.append(about, style="not bold dim")
    for name, value in described(step):
        text.append(f"\n{name}  ", style="not bold dim")
        text.append(value, style="not bold")
    return text


def described(step: LineageStep) -> Iterator[tuple[str, str]]:
    """Yields the known facts of a step: (label, text) each."""
    for name, value in _FACTS.get(step.node, _other)(step.facts()):
        if value not in (None, ""):
            yield name, str(value)


def _example_gen(facts: _Facts) -> Iterator[tuple[str, Any]]:
    yield "data", filesystems.short(facts.get("pattern", ""))
    spans = facts.get("spans", [])
    yield "spans", "" if spans == [[0, None]] else _spans(spans)  # Of a plain glob.
    yield "files", _files(facts.get("files", []))
    yield "rows", _rows(facts)


def _rows(facts: _Facts) -> str:
    """`100: 80 train, 20 eval, split by hash of day`."""
    if "rows" not in facts:
        return ""
    names = ("train", "validation", "eval")
    named = {name: facts.get(f"rows_{name}") for name in names}
    parts = [f"{rows:,} {name}" for name, rows in named.items() if rows is not None]
    split = facts.get("split")
    if isinstance(split, dict):
        keys = ", ".join(split.get("keys") or ())
        parts.append(f"split by {split.get('by')}" + f" of {keys}" * bool(keys))
    return f"{facts['rows']:,}: {', '.join(parts)}"


def _statistics(facts: _Facts) -> Iterator[tuple[str, Any]]:
    request = facts.get("request") or {}
    yield "slices", ", ".join(Slicing.of(x).name for x in request.get("slices") or ())
    yield "weight", request.get("weight")
    if (share := request.get("sample", 1)) < 1:
        yield "sample", f"{share:g} of the rows"


def _import_schema_gen(facts: _Facts) -> Iterator[tuple[str, Any]]:
    yield "file", filesystems.short(facts.get("schema_file", ""))
    yield "fingerprint", facts.get("fingerprint")


def _transform(facts: _Facts) -> Iterator[tuple[str, Any]]:
    yield "code", _code(facts)


def _trainer(facts: _Facts) -> Iterator[tuple[str, Any]]:
    yield "code", _code(facts)
    yield "hyperparameters", _pairs(facts.get("hyperparameters", {}))
    numbers = (
        (facts.get("epochs"), "{:,} epochs"),
        (facts.get("batch_size"), "batches of {:,}"),
        (facts.get("steps"), "{:,} steps"),
        (facts.get("seed"), "seed {}"),
    )
    known = [text.format(value) for value, text in numbers if value is not None]
    yield "training", ", ".join(known)
    yield "strategy", _strategy(facts)


def _strategy(facts: _Facts) -> str:
    if "strategy" not in facts:
        return ""
    replicas = facts.get("replicas", 1)
    many = f", {replicas} replicas" if replicas != 1 else ""
    return f"{facts['strategy']}{many} ({facts.get('reason', '')})"


def _baseline_model(facts: _Facts) -> Iterator[tuple[str, Any]]:
    yield (
        "in production at the time",
        filesystems.short(facts.get("path") or "") or "nothing",
    )


def _evaluator(facts: _Facts) -> Iterator[tuple[str, Any]]:
    metrics = [f"{name} {terminal.number(facts[name])}" for name in measured(facts)]
    yield "metrics", ", ".join(metrics)
    yield "examples", f"{facts['examples']:,}" if "examples" in facts else ""
    yield from _verdict(facts)


def _infra_validator(facts: _Facts) -> Iterator[tuple[str, Any]]:
    if "requests" in facts:
        yield "answered", f"{facts['requests']:,} real examples in a fresh process"
    yield from _verdict(facts)


def _verdict(facts: _Facts) -> Iterator[tuple[str, Any]]:
    if "blessed" in facts:
        blessed = facts["blessed"] in (1, "INFRA_BLESSED")
        reason = f": {facts['reason']}" if "reason" in facts else ""
        yield "verdict", ("blessed" if blessed else "not blessed") + reason


def _nothing(facts: _Facts) -> Iterator[tuple[str, Any]]:
    del facts
    return iter(())


def _bulk_inferrer(facts: _Facts) -> Iterator[tuple[str, Any]]:
    if "predictions" not in facts:
        yield "predicted", "nothing: the model was not blessed and pushed"
        return
    folder = filesystems.short(facts["predictions"])
    yield "predicted", f"{facts['rows']:,} rows, in {folder}"
    yield "rejected", f"{facts['rejected']:,} rows" if facts["rejected"] else ""


def _rollback(facts: _Facts) -> Iterator[tuple[str, Any]]:
    yield "live again", f"version {facts.get(models.ROLLBACK_OF)}"


def _promotion(facts: _Facts) -> Iterator[tuple[str, Any]]:
    yield "promoted canary", f"version {facts.get(models.PROMOTED_FROM)}"
    yield "verdict", facts.get("verdict")
    yield "approved by", facts.get(models.DECIDED_BY)
    yield "because", facts.get(models.DECIDED_BECAUSE)


def _other(facts: _Facts) -> Iterator[tuple[str, Any]]:
    """Parameters and recorded properties of a third-party component."""
    for name, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        yield name, cut(text, _SHOWN)


_FACTS: dict[str, Callable[[_Facts], Iterable[tuple[str, Any]]]] = {
    node_ids.EXAMPLE_GEN: _example_gen,
    node_ids.STATISTICS_GEN: _nothing,
    node_ids.DETAILED_STATISTICS: _statistics,
    node_ids.TRANSFORMED_STATISTICS: _statistics,
    node_ids.SCHEMA_GEN: _nothing,
    node_ids.IMPORT_SCHEMA_GEN: _import_schema_gen,
    node_ids.TRANSFORM: _transform,
    node_ids.TRAINER: _trainer,
    node_ids.BASELINE_MODEL: _baseline_model,
    node_ids.EVALUATOR: _evaluator,
    node_ids.INFRA_VALIDATOR: _infra_validator,
    node_ids.PUSHER: _nothing,
    node_ids.BULK_INFERRER: _bulk_inferrer,
    models.ROLLBACK: _rollback,
    models.PROMOTION: _promotion,
}


def _code(facts: _Facts) -> str:
    """The path of the user's module, and its fingerprint."""
    config = facts.get("custom_config")
    module = facts.get("user_module") or (config or {}).get("user_module", "")
    if isinstance(module, str) and module:
        module = json.loads(module)
    if not module:
        return ""
    file = facts.get("module_file")
    if not file:  # of a run by an older Strategos
        name = module["module"].replace(".", "/")
        file = os.path.join(module.get("folder", ""), f"{name}.py")
    return f"{filesystems.short(file)}, fingerprint {module['fingerprint']}"


def _pairs(values: Any) -> str:
    if not isinstance(values, dict):
        return str(values)
    texts = (v if isinstance(v, str) else json.dumps(v) for v in values.values())
    return ", ".join(map("=".join, zip(values, texts, strict=True)))


def _spans(spans: Sequence[tuple[int, int | None]]) -> str:
    """`1..12`, `1, 3..5`, `1 (version 2)`."""
    runs: list[list[Any]] = []  # [first, last, version]
    for number, version in spans:
        follows = runs and runs[-1][1] == number - 1 and runs[-1][2] == version
        if follows and version is None:
            runs[-1][1] = number
        else:
            runs.append([number, number, version])
    texts = []
    for first, last, version in runs:
        text = str(first) if first == last else f"{first}..{last}"
        texts.append(text + (f" (version {version})" if version is not None else ""))
    return ", ".join(texts)


def _files(files: Sequence[str]) -> str:
    names = [filesystems.short(name) for name in files]
    if len(names) <= _FILES:
        return ", ".join(names)
    return f"{len(names)}: {names[0]}, {names[1]}, …, {names[-1]}"
