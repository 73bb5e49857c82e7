"""The YAML surface: one frozen model per section, every key explained where declared.

The descriptions feed the JSON Schema for editors and `docs/configuration.md`, which
`python scripts/reference.py` writes. Whoever has a file loads it through
`loading.load`, which knows where each value came from.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator

from strategos.components.errors import BadInputError, Place, UserError
from strategos.components.example_gen.spans import Listing
from strategos.components.files.filesystems import is_remote
from strategos.components.runtime_parameters import NOTHING, TABLE, RuntimeParameter
from strategos.pipeline.config.clusters import Kubeflow, Vertex
from strategos.pipeline.config.distribution import Distribution
from strategos.pipeline.config.evaluator import Bound, Evaluator, Limits
from strategos.pipeline.config.problems import refuse
from strategos.pipeline.config.trainer import (
    Callbacks,
    Checkpoint,
    EarlyStopping,
    Trainer,
)
from strategos.pipeline.config.types import (
    LATEST,
    PASSWORD_VARIABLE,
    SERVERS,
    Database,
    Duration,
    Function,
    Hyperparameters,
    Module,
    Name,
    PathText,
    Positive,
    Section,
    Spans,
    Spellings,
    Text,
    Texts,
    has_spans,
    main_file,
    not_yet,
    seconds,
)

__all__ = [
    "Bound",
    "Callbacks",
    "Checkpoint",
    "Config",
    "Data",
    "Distribution",
    "EarlyStopping",
    "Evaluator",
    "Kubeflow",
    "Limits",
    "Pusher",
    "Run",
    "Schedule",
    "Schema",
    "Split",
    "Trainer",
    "Transform",
    "Vertex",
]


# What pandas and Arrow take for missing, but for the rarest.
_NULL_VALUES = (
    *("NA", "N/A", "n/a", "<NA>", "#N/A", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan"),
)


class Split(Section):
    """How rows are divided into what trains the model and what judges it."""

    by: Literal["hash", "ratio"] = Field(
        "ratio",
        description="`hash` puts rows with equal values in `keys` on the same side; "
        "`ratio` divides row by row.",
    )
    keys: Texts = Field(
        (),
        description="Columns whose values decide the split of a row, for `by: hash`.",
        validate_default=True,
    )
    train: Positive = Field(
        8, description="Share of the rows for training, relative to `eval`."
    )
    eval: Positive = Field(
        2, description="Share of the rows for evaluation, relative to `train`."
    )

    @field_validator("keys")
    @classmethod
    def _as_by_says(cls, keys: tuple[str, ...], info: ValidationInfo):
        by = info.data.get("by")
        if by == "hash" and not keys:
            remedy = "Name the columns: `keys: [customer]`; or write `by: ratio`."
            raise refuse("`by: hash` needs columns to hash", remedy=remedy)
        if by == "ratio" and keys:
            remedy = "Write `by: hash`, or remove `keys`."
            raise refuse("`by: ratio` reads no keys", remedy=remedy)
        return keys


class Data(Section):
    """Which files hold the rows, and how they are divided."""

    examples: PathText = Field(
        description="Glob of the data files, CSV or Parquet. `{SPAN}`, `{DATE}` and "
        "`{VERSION}` in it mark the part of the path that numbers the spans."
    )
    spans: Spans = Field("all", description="Spans to read.")
    split: Split = Field(
        default_factory=Split,
        description="Division of the rows into training and evaluation.",
    )
    prepare: Function | None = Field(
        None,
        description="`module:function` that makes missing data (by default function "
        "`prepare`), called with the folder of the YAML.",
    )
    null_values: Spellings = Field(
        _NULL_VALUES,
        description="Spellings of a missing value in columns whose other values are "
        "numbers, or that the schema declares as numbers. Text columns keep them. An "
        "empty field is missing in every column.",
    )
    on_bad_row: Annotated[
        Literal["fail"],
        not_yet(
            ("skip", "drop", "quarantine", "warn"),
            "setting bad rows aside comes with a later version; this one stops at "
            "them: `fail`.",
        ),
    ] = Field("fail", description="What happens to a row that cannot be read.")

    @field_validator("spans")
    @classmethod
    def _there_are_spans(cls, spans: str, info: ValidationInfo) -> str:
        pattern = info.data.get("examples")
        if pattern and spans not in ("all", "latest") and not has_spans(pattern):
            raise refuse(
                f"received {spans}, but `data.examples` has no spans",
                remedy="Remove `spans`, or put {SPAN} or {DATE} into the pattern.",
            )
        return spans

    def listing(self) -> Listing:
        """The files of these data, which a command lists once and hands on."""
        return Listing(self.examples, self.spans)


class Schema(Section):
    """What the data should look like."""

    file: PathText | None = Field(
        None,
        description="Curated TFMD schema (`.pbtxt`). By default, it is inferred.",
    )
    on_anomaly: Literal["stop", "warn"] = Field(
        "stop", description="What happens if the data do not fit the schema."
    )


class Transform(Section):
    """From raw rows to the model's features."""

    module: Module = Field(
        description="Module with `preprocessing_fn(inputs)`, or with "
        "`preprocessing_fn(inputs, custom_config)`, as TFX calls it."
    )
    custom_config: Hyperparameters = Field(
        default_factory=dict,
        description="Settings that `preprocessing_fn` receives as `custom_config`.",
    )


class Pusher(Section):
    """Where a blessed model goes."""

    to: PathText = Field(
        description="Folder on this machine for the pushed versions of the model. "
        "`strategos compile` also accepts a remote folder."
    )
    keep: Positive = Field(3, description="Number of newest versions that stay.")


class Run(Section):
    """Where and how the pipeline runs."""

    root: PathText = Field(
        "runs",
        description="Folder for artifacts, logs and ML Metadata; or `gs://…` or "
        "`s3://…` for artifacts only, with `metadata` on a server.",
        validate_default=True,
    )
    runner: Literal["local", "beam"] = Field(
        "local",
        description="`local` starts one warm executor process; `beam` is TFX's "
        "BeamDagRunner.",
    )
    metadata: Database = Field(
        "sqlite",
        description="ML Metadata: `sqlite` (a file under `root`) or the URL of a "
        f"server; its password is read from {PASSWORD_VARIABLE}.",
        validate_default=True,
    )
    cache: bool = Field(
        True, description="Whether unchanged nodes reuse their earlier outputs."
    )

    @field_validator("metadata")
    @classmethod
    def _in_reach(cls, metadata: str, info: ValidationInfo) -> str:
        root = info.data.get("root", "")
        if metadata == "sqlite" and is_remote(root):
            raise refuse(
                f"SQLite cannot lie under the remote root {root}",
                expected=SERVERS,
                remedy="Name a server here, or a local `run.root`.",
            )
        return metadata


class Schedule(Section):
    """When `strategos retrain --if-due` finds that a run is due."""

    max_age: Duration | None = Field(
        None, description="Age of the newest pushed model at which a run is due."
    )
    on_new_span: bool = Field(
        True,
        description="Whether a new span makes a run due.",
    )

    @field_validator("on_new_span")
    @classmethod
    def _ever_due(cls, on_new_span: bool, info: ValidationInfo) -> bool:
        if not on_new_span and info.data.get("max_age", "") is None:
            remedy = "Set one of the two, or remove the section."
            raise refuse("without `max_age` too, no run is ever due", remedy=remedy)
        return on_new_span

    @property
    def max_age_seconds(self) -> int | None:
        """`max_age` in seconds."""
        return None if self.max_age is None else seconds(self.max_age)


class Config(Section):
    """A pipeline: data, how a model comes of them, and when it may serve."""

    name: Name = Field(
        "",
        description="Name of the pipeline. By default, the name of the YAML's folder.",
        validate_default=True,
    )
    label: Text = Field(description="Column that the model predicts.")
    data: Data = Field(description="The data and their split.")
    schema_: Schema = Field(
        default_factory=Schema,
        alias="schema",
        description="The schema, and what happens if the data do not fit it.",
    )
    transform: Transform = Field(
        description="The user's preprocessing: from raw rows to features."
    )
    trainer: Trainer = Field(description="The user's model and its training.")
    evaluator: Evaluator | None = Field(
        None,
        description="Metrics and bounds. Without this section, no model is evaluated.",
    )
    pusher: Pusher | None = Field(
        None,
        description="Target of blessed models. Without this section, none is pushed.",
        validate_default=True,
    )
    run: Run = Field(
        # Validated, so that its default paths count from the folder of the YAML.
        default_factory=dict,
        description="Root, runner, ML Metadata and caching of a run.",
        validate_default=True,
    )
    schedule: Schedule | None = Field(
        None, description="When `strategos retrain --if-due` runs the pipeline."
    )
    kubeflow: Kubeflow | None = Field(
        None, description="Settings for Kubeflow Pipelines."
    )
    vertex: Vertex | None = Field(None, description="Settings for Vertex AI Pipelines.")

    _path: Path = PrivateAttr()
    _password: str | None = PrivateAttr(None)
    _places: dict[str, Place] = PrivateAttr(default_factory=dict)

    def model_post_init(self, context: Any) -> None:
        """Keeps what the loader knows and the YAML does not say."""
        context = context or {}
        self._path = main_file(context)
        self._password = context.get("password")
        self._places = context.get("places", {})

    @property
    def path(self) -> Path:
        """The main YAML, absolute."""
        return self._path

    @property
    def folder(self) -> Path:
        """The folder of the main YAML, where the user's modules lie."""
        return self._path.parent

    @property
    def metadata_password(self) -> str | None:
        """The password of the ML Metadata server, from the environment."""
        return self._password

    def where(self, key: str) -> Place:
        """Where the value of `key` is given, or the nearest key above it."""
        while key and key not in self._places:
            key = key.rpartition(".")[0]
        return self._places.get(key) or Place(str(self._path))

    def problem(self, key: str, message: str = "", **fields: str) -> BadInputError:
        """A problem with the value of `key`, at the place where it is given.

        Args:
          key: Such as `trainer.epochs`.
          message: What is wrong.
          **fields: `received`, `expected` and `remedy` of a `UserError`.
        """
        return BadInputError(message, key=key, place=self.where(key), **fields)

    def located(self, error: UserError, key: str = "") -> UserError:
        """`error` as one about the setting that it names, or else about `key`.

        Without a place of its own it is where the setting is given.
        """
        key = error.key or key
        return error.but(key=key, place=error.place or self.where(key))

    def runtime_parameters(self) -> dict[str, int | float | str]:
        """What a compiled pipeline takes at run time; mappings as JSON.

        Those that planning computes are missing, and `spans` is the selector
        (`latest`), not yet the spans that it selects.
        """
        given = (each for each in TABLE if each.setting)
        return {each.name: each.encode(self._at_run_time(each)) for each in given}

    def _at_run_time(self, parameter: RuntimeParameter) -> Any:
        if parameter.name == "distribution":
            return self.trainer.distribution.for_results()
        if parameter.name == "warm_start":
            return self.trainer.named_weights or NOTHING
        return attrgetter(parameter.setting)(self)

    @field_validator("pusher")
    @classmethod
    def _latest_is_pushed(cls, pusher: Pusher | None, info: ValidationInfo):
        trainer = info.data.get("trainer")
        if trainer and trainer.warm_start == LATEST and not pusher:
            raise refuse(
                "`trainer.warm_start: latest` starts from the newest pushed model, and "
                "without this section none is pushed",
                remedy="Add `pusher: {to: DIR}`, or name a model's folder there.",
            )
        return pusher

    @field_validator("schedule")
    @classmethod
    def _spans_come(cls, schedule: Schedule | None, info: ValidationInfo):
        data = info.data.get("data")
        if schedule and data and not schedule.max_age and not has_spans(data.examples):
            raise refuse(
                "a new span never comes: `data.examples` has no spans",
                remedy="Set `max_age`, or put {SPAN} or {DATE} into the pattern.",
            )
        return schedule
