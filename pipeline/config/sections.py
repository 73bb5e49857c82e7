"""The YAML surface: one frozen model per section, every key explained where declared.

`python scripts/reference.py` generates the JSON Schema for editors and
`docs/keys` from the descriptions. Files are loaded by `loading.load`, which
records the origin of each value.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator

from strategos.components import node_ids, plugins
from strategos.components.errors import BadInputError, Place, UserError
from strategos.components.files import patterns
from strategos.components.files.filesystems import is_remote
from strategos.components.runtime_parameters import NOTHING, TABLE, RuntimeParameter
from strategos.components.targets.label import Label
from strategos.components.trainer.operation import Operation
from strategos.components.user_code.workload_paths import PREDICTED
from strategos.pipeline.config.cluster.sections import KNOWN_STEPS, Kubeflow, Vertex
from strategos.pipeline.config.data import Data
from strategos.pipeline.config.data_files.gates import Gates
from strategos.pipeline.config.data_files.predict import Predict
from strategos.pipeline.config.evaluator import Evaluator
from strategos.pipeline.config.labels import checks as label_checks
from strategos.pipeline.config.labels.label_text import LabelText
from strategos.pipeline.config.nodes.order import problems as node_problems
from strategos.pipeline.config.nodes.sections import Nodes
from strategos.pipeline.config.operating import Notify, Pusher, Schedule
from strategos.pipeline.config.problems import raise_all, reject, reject_at
from strategos.pipeline.config.run import Run
from strategos.pipeline.config.slices.statistics import MaybeStatistics
from strategos.pipeline.config.trainer import Trainer
from strategos.pipeline.config.types import (
    LATEST,
    Hyperparameters,
    Module,
    Name,
    PathText,
    Section,
    Text,
    Texts,
    main_file,
)


class Schema(Section):
    """The schema of the data, and the reaction to data that do not fit it."""

    file: PathText | None = Field(
        None,
        examples=["schema.pbtxt"],
        description="Curated TFMD schema (`.pbtxt`), a path or a URL, `s3://…` or "
        "`gs://…`. By default, it is inferred.",
    )
    on_anomaly: Literal["stop", "warn"] = Field(
        "stop", description="What happens if the data do not fit the schema."
    )


class Transform(Section):
    """The user's preprocessing: from raw rows to features."""

    module: Module = Field(
        description="Module with `preprocessing_fn(inputs)`, or with "
        "`preprocessing_fn(inputs, custom_config)`, as TFX calls it."
    )
    custom_config: Hyperparameters = Field(
        default_factory=dict,
        description="Settings that `preprocessing_fn` receives as `custom_config`.",
    )
    files: Texts = Field(
        (),
        description="Files, folders or globs, relative to the YAML, on which "
        "`preprocessing_fn` depends in a way that a run cannot record, such as files "
        "that a subprocess reads. Their contents are part of the cache key.",
    )


_NEEDED_BY = {
    "evaluator": (
        *("compare_fresh", True),
        "`trainer.compare_fresh` compares two models, but without this section none is "
        "evaluated",
        "Add `evaluator: {task: …, metrics: […]}`, or remove `trainer.compare_fresh`.",
    ),
    "pusher": (
        *("warm_start", LATEST),
        "`trainer.warm_start: latest` starts from the newest pushed model, but without "
        "this section none is pushed",
        "Add `pusher: {to: DIR}`, or set `trainer.warm_start` to a model's folder.",
    ),
    "vertex": (
        *("distribution.launcher", "vertex"),
        "`trainer.distribution.launcher: vertex` creates jobs, but without this "
        "section no project is named",
        "Add `vertex: {project: …, image: …, root: gs://…}`.",
    ),
}
"""Sections that a value of a key of `trainer` needs: key, value, problem and remedy."""


class Config(Section):
    """A pipeline: its data, its model, and when the model may serve."""

    name: Name = Field(
        "",
        description="Name of the pipeline; required with ML Metadata on a server. By "
        "default, that of earlier runs; at first that of the folder without accents, "
        "with `-` for all but letters and digits.",
        validate_default=True,
    )
    plugins: Annotated[tuple[Module, ...], Field(strict=False)] = Field(
        (),
        description="Modules beside the YAML with launchers, readers, targets, "
        "metrics, gates, notifications or engines of this workload; see "
        "[plugins.md](plugins.md).",
        validate_default=True,
    )
    label: LabelText = Field(
        examples=["late"],
        description="What the model predicts: a column, or a feature that "
        "`preprocessing_fn` makes; or several of them, `[rain, wind]`, each 0 or 1: "
        "the classes of a row for a model with one output of that width; or, for a "
        "model with several outputs, the column that each of them learns: `{late: "
        "late, minutes: delay}`. Without a label, for example for an autoencoder: "
        "`{reconstruct: all}`, or a list of the features to reconstruct; see "
        "[reconstruction.md](configuration/reconstruction.md).",
    )
    weight: Text | None = Field(
        None,
        examples=["passengers"],
        description="How much each row counts in training, validation and evaluation: "
        "a column, or a feature that `preprocessing_fn` makes. The model does not get "
        "it, and a server needs none.",
    )
    data: Data = Field(description="The data and their split.")
    schema_: Schema = Field(
        default_factory=Schema,
        alias="schema",
        description="The schema, and what happens if the data do not fit it.",
    )
    statistics: MaybeStatistics = None
    gates: Gates | None = Field(
        None,
        description="Bounds on what new spans look like, beside the usual ones. "
        "Without this section, spans are not compared.",
    )
    transform: Transform = Field(
        description="The user's preprocessing: from raw rows to features."
    )
    trainer: Trainer = Field(description="The user's model and its training.")
    evaluator: Evaluator | None = Field(
        None,
        description="Metrics and bounds. Without this section, no model is evaluated.",
        validate_default=True,
    )
    pusher: Pusher | None = Field(
        None,
        description="Target of blessed models. Without this section, none is pushed.",
        validate_default=True,
    )
    predict: Predict | None = Field(
        None,
        description="Files that the model of a run predicts once it is blessed and "
        "pushed. Without this section, none are.",
    )
    nodes: Nodes = Field(
        default_factory=dict,
        description="Components of your own, as further nodes, by name.",
    )
    run: Run = Field(
        # Validated, so that default paths are made absolute from the YAML's folder.
        default_factory=dict,
        description="Root, runner, engine, ML Metadata and caching of a run.",
        validate_default=True,
    )
    schedule: Schedule | None = Field(
        None, description="When `strategos retrain --if-due` runs the pipeline."
    )
    notify: Notify | None = Field(
        None,
        description="Recipients of a message about the end of a run, besides the "
        "terminal.",
    )
    kubeflow: Kubeflow | None = Field(
        None, description="Settings for Kubeflow Pipelines."
    )
    vertex: Vertex | None = Field(
        None,
        description="Settings for Vertex AI Pipelines, and for "
        "`trainer.distribution.launcher: vertex`.",
        validate_default=True,
    )

    _path: Path = PrivateAttr()
    _password: str | None = PrivateAttr(None)
    _places: dict[str, Place] = PrivateAttr(default_factory=dict)

    def model_post_init(self, context: Any) -> None:
        """Keeps facts from the loader: path, password and the place of each key.

        Args:
          context: A mapping with `path`, `password` and `places`, all optional.
        """
        context = context or {}
        self._path = main_file(context)
        self._password = context.get("password")
        self._places = context.get("places", {})

    @field_validator("plugins")
    @classmethod
    def _can_be_imported(
        cls, names: tuple[str, ...], info: ValidationInfo
    ) -> tuple[str, ...]:
        try:
            plugins.use(str(main_file(info.context).parent), names)
        except UserError as error:
            raise reject(error.message, remedy=error.remedy) from None
        return names

    @property
    def path(self) -> Path:
        """The main YAML, absolute."""
        return self._path

    @property
    def folder(self) -> Path:
        """The folder of the main YAML; it contains the user's modules."""
        return self._path.parent

    @property
    def metadata_password(self) -> str | None:
        """The password of the ML Metadata server, from the environment."""
        return self._password

    def operation(self) -> Operation:
        """The settings for how training is run; caching never compares them."""
        operation = self.trainer.operation(self.kubeflow, self.vertex)
        if self.evaluator:
            operation = dataclasses.replace(operation, judged_as=self.evaluator.judged)
        is_unstaged = self.trainer.distribution.stages and not operation.job["folder"]
        if not (is_unstaged and is_remote(self.run.root)):
            return operation
        # The Trainer works on local copies, so its own paths name no place in the root.
        root = self.run.root.rstrip("/")
        folder = f"{root}/{self.name}/{node_ids.TRAINER}/staged"
        return dataclasses.replace(operation, job={**operation.job, "folder": folder})

    @property
    def other_data(self) -> dict[str, str]:
        """The patterns of data besides `data.examples`, by setting."""
        predicted = {PREDICTED: self.predict.data} if self.predict else {}
        return {**(self.gates.other_data if self.gates else {}), **predicted}

    @property
    def origins(self) -> dict[str, str]:
        """Where each key that is set is set: `pipeline.yaml:12` or `--set`."""
        return {key: place.origin for key, place in self._places.items()}

    def where(self, key: str) -> Place:
        """The place where `key` is set, else where the nearest section above is.

        Args:
          key: E.g. `trainer.epochs`.
        """
        while key and key not in self._places:
            key = key.rpartition(".")[0]
        return self._places.get(key) or Place(str(self._path))

    def problem(self, key: str, message: str = "", **fields: Any) -> BadInputError:
        """An error about the value of `key`, with the place where it is set.

        Args:
          key: E.g. `trainer.epochs`.
          message: As in `UserError`.
          **fields: `received`, `expected` and `remedy` of a `UserError`.
        """
        return BadInputError(message, key=key, place=self.where(key), **fields)

    def located(self, error: UserError, key: str = "") -> UserError:
        """Returns a copy of `error` with the key and place of a setting.

        Args:
          error: An error; the key and place that it has are kept.
          key: The setting at fault, if `error` names none.
        """
        key = error.key or key
        return error.but(key=key, place=error.place or self.where(key))

    @property
    def target(self) -> Label:
        """The label."""
        return Label.of(self.label)

    def runtime_parameters(self) -> dict[str, int | float | str]:
        """The runtime parameters that settings determine, by name; mappings as JSON.

        `spans` is still the selector (`latest`), not the selected spans.
        """
        parameters = (each for each in TABLE if each.setting)
        return {each.name: each.encode(self._at_run_time(each)) for each in parameters}

    def _at_run_time(self, parameter: RuntimeParameter) -> Any:
        if parameter.name == "distribution":
            return self.trainer.distribution.for_results()
        if parameter.name == "warm_start":
            return self.trainer.named_weights or NOTHING
        return attrgetter(parameter.setting)(self)

    @field_validator("weight", "data", "trainer", "evaluator")
    @classmethod
    def _fits_label(cls, value: Any, info: ValidationInfo) -> Any:
        return label_checks.checked(value, info)

    @field_validator("evaluator", "pusher", "vertex")
    @classmethod
    def _is_not_missing(cls, section: Any, info: ValidationInfo) -> Any:
        trainer = info.data.get("trainer")
        key, value, why, remedy = _NEEDED_BY[str(info.field_name)]
        if trainer and not section and attrgetter(key)(trainer) == value:
            raise reject(why, remedy=remedy, because=f"trainer.{key}")
        return section

    @field_validator("kubeflow", "vertex")
    @classmethod
    def _names_steps(
        cls, target: Kubeflow | Vertex | None, info: ValidationInfo
    ) -> Kubeflow | Vertex | None:
        known = (*KNOWN_STEPS, *info.data.get("nodes", ()))
        unknown = sorted((target.steps if target else {}).keys() - set(known))
        if unknown and "nodes" in info.data:
            message = f"no step has the name {', '.join(unknown)}"
            raise_all([reject_at(("steps",), message, expected=", ".join(known))])
        return target

    @field_validator("nodes")
    @classmethod
    def _stand_in_the_graph(cls, nodes: Nodes, info: ValidationInfo) -> Nodes:
        if problems := list(node_problems(info.data, nodes)):
            raise_all(problems)
        return nodes

    @field_validator("predict")
    @classmethod
    def _is_live(cls, predict: Predict | None, info: ValidationInfo) -> Predict | None:
        pusher = info.data.get("pusher")
        if predict and pusher and pusher.canary:
            raise reject(
                "a run pushes its model to `pusher.canary`, on trial, and predicts "
                "with models that are live only",
                remedy="Remove the section, and run `strategos predict PIPELINE_YAML "
                "--spans … --output FOLDER` after each promotion.",
            )
        return predict

    @field_validator("gates")
    @classmethod
    def _compares_spans(cls, gates: Gates | None, info: ValidationInfo) -> Gates | None:
        data = info.data.get("data")
        if gates and data and not patterns.has_spans(data.examples):
            raise reject(
                "spans are compared, but `data.examples` has none",
                remedy="Put {SPAN} or {DATE} into the pattern.",
            )
        return gates

    @field_validator("schedule")
    @classmethod
    def _spans_come(
        cls, schedule: Schedule | None, info: ValidationInfo
    ) -> Schedule | None:
        data, evaluator = info.data.get("data"), info.data.get("evaluator")
        known = evaluator.metrics if evaluator else ()
        for name in schedule.metrics if schedule else ():
            if name not in known:
                raise reject(
                    f"`metrics` names `{name}`, which is not in `evaluator.metrics`",
                    expected=", ".join(known) or "nothing: no model is evaluated",
                    remedy="Add it to `evaluator.metrics`.",
                )
        if not schedule or not data or schedule.ever_due:
            return schedule
        remedy = "Set `cron`, `max_age` or `on_change`"
        watches = schedule.drift or schedule.metrics
        if schedule.wanted_spans is None and not watches:
            raise reject("no run is ever due", remedy=f"{remedy}, or `new_spans`.")
        if not patterns.has_spans(data.examples):
            raise reject(
                "no new span can arrive: `data.examples` has no spans",
                remedy=f"{remedy}, or put {{SPAN}} or {{DATE}} into the pattern.",
            )
        return schedule
