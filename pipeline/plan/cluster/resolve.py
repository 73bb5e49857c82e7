"""The first step of a compiled pipeline: decides on the inputs of the other steps.

On this machine `planning` decides before a run. A recurring run on a cluster has no
process before it, so a step in a container decides with the same functions: the spans
that `data.spans` selects, the hash of their files, the spans that `gates` judges, the
model in production with its weights, and the key of the candidate.

    python -m strategos.pipeline.plan.cluster.resolve --question JSON --input JSON
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import node_ids, runtime_parameters
from strategos.components.container import step_record
from strategos.components.data_files import predicted_spans, spans
from strategos.components.data_files.listing import Completeness, Listing
from strategos.components.data_files.queries import snapshots
from strategos.components.errors import BadInputError, UserError
from strategos.components.runtime_parameters import NOTHING
from strategos.pipeline.config.types import LATEST
from strategos.pipeline.plan import compared_spans, production
from strategos.pipeline.plan.cluster import recording
from strategos.pipeline.plan.production import Production

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config

PRODUCTION = "production"
"""Value of the parameter `baseline` that stands for the model in production."""

GANGS = ("multi_worker_mirrored", "parameter_server")
"""Strategies of several processes, for which one container is not enough."""

NODE = node_ids.RESOLVE
SETTINGS = "settings"
"""The output with the settings of the run, for the steps that write reports."""

_COMMAND = ["python", "-m", "strategos.pipeline.plan.cluster.resolve"]
_OUTPUTS = (
    *("spans", "data_fingerprint", "compared_spans"),
    *("baseline", "warm_start", "candidate", "predicted_spans"),
)
_DECLARED = (*_OUTPUTS, SETTINGS)
_GIVEN = ("spans", "baseline", "warm_start")
"""Outputs that are parameters of a run, too: their values say how to decide."""


@dataclasses.dataclass(frozen=True)
class ResolveRequest:
    """The settings that the step needs.

    Attributes:
      pattern: `data.examples`, as steps see it.
      marker: `data.complete.marker`, as steps see it.
      quiet: `data.complete.quiet` in seconds.
      held_out: Number of the newest spans that are not for training.
      destination: `pusher.to`; "" without a Pusher.
      key: Hash of the code and of all settings that are no parameters.
      gangs: Whether the Trainer's launcher starts processes in other pods.
      gates: Whether new spans are judged.
      others: Patterns of further data, by setting, as steps see them.
      fresh_every: `trainer.fresh_every`.
      cache: `run.cache`; if false, an unchanged candidate is another model.
      root: The root of the artifacts.
      take_over: As in `planning.RunOptions`.
      made_from: Of `record.to_json`, without data and stack; {} keeps no record.
      query: The fields of a `snapshots.Query`; {} without a database.
      predicted: The arguments of `predicted_spans.choose`; {} without `predict`.
      modules: URLs of the archives with the user's modules; empty if the image has
        them.
    """

    pattern: str
    marker: str | None
    quiet: int
    held_out: int
    destination: str
    key: str
    gangs: bool = False
    gates: bool = False
    others: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fresh_every: int | None = None
    cache: bool = True
    root: str = ""
    take_over: str | None = None
    made_from: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    query: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    predicted: Mapping[str, str] = dataclasses.field(default_factory=dict)
    modules: Sequence[str] = ()

    @classmethod
    def of(
        cls, config: Config, key: str, take_over: str | None = None
    ) -> ResolveRequest:
        """The question for settings with the paths of steps.

        Args:
          config: The settings, see `paths.moved`.
          key: `caching.candidate_key` of the graph without values of its parameters.
          take_over: As in `planning.RunOptions`.
        """
        complete = config.data.completeness or Completeness()
        gates, predict = config.gates, config.predict
        to = config.pusher.to if config.pusher else ""
        return cls(
            pattern=config.data.examples,
            marker=complete.marker,
            quiet=complete.quiet,
            held_out=config.data.held_out,
            destination=to,
            key=key,
            gangs=config.trainer.distribution.launcher != "local",
            gates=gates is not None,
            others=gates.other_data if gates else {},
            fresh_every=config.trainer.fresh_every,
            cache=config.run.cache,
            root=config.run.root,
            take_over=take_over,
            predicted=predict.choice if predict else {},
        )


def add_to(
    spec: dict[str, Any],
    question: ResolveRequest,
    defaults: Mapping[str, int | float | str],
    image: str,
) -> None:
    """Adds the step to a pipeline spec in place, and lets others take its outputs.

    Args:
      spec: The pipeline spec; every runtime parameter is an input of the pipeline.
      question: The settings that the step needs.
      defaults: A value for each runtime parameter.
      image: The container image.
    """
    inputs = spec["root"]["inputDefinitions"]["parameters"]
    for name in set(_OUTPUTS) - set(_GIVEN):
        inputs.pop(name, None)
    for name, parameter in inputs.items():
        parameter |= {"defaultValue": defaults[name], "isOptional": True}
    for task in spec["root"]["dag"]["tasks"].values():
        _take_outputs(task)
    spec["components"][NODE] = {
        "executorLabel": f"{NODE}_executor",
        "inputDefinitions": {
            "parameters": {
                name: {"parameterType": each["parameterType"]}
                for name, each in inputs.items()
            }
        },
        "outputDefinitions": {
            "parameters": {name: {"parameterType": "STRING"} for name in _DECLARED}
        },
    }
    spec["root"]["dag"]["tasks"][NODE] = {
        "componentRef": {"name": NODE},
        "inputs": {
            "parameters": {name: {"componentInputParameter": name} for name in inputs}
        },
        "taskInfo": {"name": NODE},
    }
    text = json.dumps(dataclasses.asdict(question), sort_keys=True)
    spec["deploymentSpec"]["executors"][f"{NODE}_executor"] = {
        "container": {
            "image": image,
            "command": _COMMAND,
            "args": ["--question", text, "--input", "{{$}}"],
        }
    }


def _take_outputs(task: dict[str, Any]) -> None:
    passed = task.get("inputs", {}).get("parameters", {})
    for name, source in passed.items():
        parameter = source.get("componentInputParameter")
        if parameter in _OUTPUTS:
            passed[name] = output(parameter)
    task["dependentTasks"] = sorted({*task.get("dependentTasks", ()), NODE})


def output(name: str) -> dict[str, Any]:
    """The source of an input parameter that is an output of the step.

    Args:
      name: The output.
    """
    return {"taskOutputParameter": {"producerTask": NODE, "outputParameterKey": name}}


def answer(
    question: ResolveRequest,
    parameters: Mapping[str, Any],
    data: Listing,
    memo: Path | None = None,
) -> dict[str, str]:
    """Decides on the outputs of the step.

    Args:
      question: The settings when the pipeline was compiled.
      parameters: The values of the run's parameters, by name.
      data: Result of `listing`.
      memo: File that caches digests. Default: none.

    Returns:
      A value for each of `_OUTPUTS`.

    Raises:
      BadInputError: A parameter is impossible, its spans do not exist, or another root
        pushed the newest version.
    """
    if not question.gangs:
        _reject_gangs(parameters["distribution"])
    to = question.destination
    serving = production.described(to) if to else None
    if serving:
        about = serving.about, question.root, question.take_over
        production.reject_other(to, *about)
    answers = {
        "spans": json.dumps([[span.number, span.version] for span in data.chosen]),
        "data_fingerprint": spans.fingerprint(data.chosen, memo),
        "compared_spans": NOTHING,
    }
    if question.gates:
        new = _new(data, serving)
        answers["compared_spans"] = compared_spans.compared_spans(
            data, new, question.others
        )
    predicted = NOTHING
    if question.predicted:
        predicted = predicted_spans.choose(**question.predicted, memo=memo)
    candidate = _candidate(question.key, {**parameters, **answers})
    return {
        **answers,
        "baseline": _baseline(question, parameters, serving, candidate),
        "warm_start": _weights(question, parameters["warm_start"], serving, candidate),
        "candidate": candidate,
        "predicted_spans": predicted,
    }


def listing(question: ResolveRequest, parameters: Mapping[str, Any]) -> Listing:
    """The files of the spans that the run reads.

    Args:
      question: The settings when the pipeline was compiled.
      parameters: The values of the run's parameters, by name.

    Raises:
      BadInputError: The spans do not exist.
    """
    return Listing(
        question.pattern,
        parameters["spans"],
        Completeness(question.marker, question.quiet),
        held_out=question.held_out,
    )


def _reject_gangs(distribution: str) -> None:
    strategy = json.loads(distribution).get("strategy")
    if strategy in GANGS:
        raise BadInputError(
            "`launcher: local` starts no processes in other pods",
            key="distribution",
            received=strategy,
            expected="a strategy of one process: auto, one_device, mirrored, tpu",
        )


def _new(data: Listing, serving: Production | None) -> set[int]:
    """Numbers of the spans that the model in production has not seen."""
    seen = dict(serving.about.get("spans", ())) if serving else {}
    return {
        s.number
        for s in data.chosen
        if compared_spans.is_new(s.number, s.version, seen)
    }


def _weights(
    question: ResolveRequest, wanted: str, serving: Production | None, candidate: str
) -> str:
    """The folder of the weights to start from; `NOTHING` for fresh ones."""
    if wanted != LATEST:
        return wanted
    if serving and not serving.about.get("generation"):
        print(
            f"warm_start: latest: {serving.path} contains no weights, as no compiled "
            "pipeline with `warm_start: latest` has pushed it; training starts from "
            "fresh weights"
        )
    every, fresh = question.fresh_every, not question.cache
    return production.pushed_weights(serving, candidate, fresh, every)


def _candidate(key: str, values: Mapping[str, Any]) -> str:
    """The key of the model that a run with these values trains."""
    nodes = (node_ids.EXAMPLE_GEN, node_ids.TRAINER)
    names = {each.name for node in nodes for each in runtime_parameters.taken_by(node)}
    text = json.dumps([key, {name: _plain(values[name]) for name in sorted(names)}])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> str:
    """A value as text: launchers hand whole numbers over as 3 or as 3.0."""
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_whole else value)


def _baseline(
    question: ResolveRequest,
    parameters: Mapping[str, Any],
    serving: Production | None,
    candidate: str,
) -> str:
    """The folder of the model to compare with; `NOTHING` for none."""
    wanted = parameters.get("baseline", PRODUCTION)
    if wanted != PRODUCTION:
        return wanted
    return production.baseline(serving, candidate, fresh=not question.cache)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the step; returns its exit code.

    Args:
      arguments: By default `sys.argv[1:]`.
    """
    parser = argparse.ArgumentParser(prog=NODE)
    parser.add_argument("--question", required=True, type=json.loads)
    parser.add_argument("--input", required=True, type=json.loads)
    options = parser.parse_args(arguments)
    question = ResolveRequest(**options.question)
    parameters = options.input["inputs"]["parameterValues"]
    with tempfile.TemporaryDirectory() as folder:
        memo, archives = Path(folder, "digests.json"), Path(folder, "archives")
        try:
            if question.query:
                snapshots.bring(snapshots.Query(**question.query), print)
            data = listing(question, parameters)
            answers = answer(question, parameters, data, memo)
        except UserError as error:
            print(f"{NODE}: {error}", file=sys.stderr)
            return error.exit_code
        values = dict(answers)
        if question.made_from:
            made = recording.of_run(question.made_from, parameters)
            values[SETTINGS] = recording.settings(made)
            if url := step_record.taken_from(options.input):
                kept = recording.complete(made, data, memo)
                code = recording.contents(made, question.modules, archives)
                step_record.write_answer(url, answers, kept, code)
    for name, declared in options.input["outputs"]["parameters"].items():
        file = Path(declared["outputFile"])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(values[name])
    print("\n".join(f"{name}: {value}" for name, value in answers.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
