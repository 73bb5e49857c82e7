"""The YAML surface: one frozen model per section, every key explained where declared.

The descriptions feed the JSON Schema for editors and `docs/configuration.md`, which
`python -m strategos.pipeline.reference` writes. Whoever has a file loads it through
`loading.load`, which knows where each value came from.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationInfo,
    model_validator,
)
from pydantic_core import InitErrorDetails

from strategos.pipeline.problems import raise_all, received, refuse, refuse_at
from strategos.pipeline.surface import Allowed, PathMark, nearest

PASSWORD_VARIABLE = "STRATEGOS_METADATA_PASSWORD"
"""The environment variable that holds the password of `run.metadata`."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SERVERS = "mysql://USER@HOST:PORT/DATABASE or postgresql://USER@HOST:PORT/DATABASE"


def is_remote(path: str) -> bool:
    """Whether `path` is a URL (`gs://…`, `s3://…`) and not a path on this machine."""
    return re.match(r"[a-z][a-z0-9+.-]*://", path) is not None


def absolute(path: str, folder: str | Path) -> str:
    """`path` from `folder`, without `..` and `~`; URLs stay as they are."""
    if is_remote(path):
        return path
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def _anchored(path: str, info: ValidationInfo) -> str:
    if not path.strip():
        raise refuse("received an empty path", remedy="Name a file or a folder.")
    return absolute(path, _file(info).parent)


def _file(info: ValidationInfo) -> Path:
    """The main YAML, as the loader hands it on."""
    return (info.context or {}).get("path") or Path.cwd() / "pipeline.yaml"


def _default_name(name: str, info: ValidationInfo) -> str:
    if name:
        return name
    words = re.findall("[a-z0-9]+", _file(info).parent.name.lower())
    return "-".join(words)[:63].strip("-") or "pipeline"


def _not_yet(names: tuple[str, ...], message: str) -> BeforeValidator:
    """Refuses values by name that a later version brings."""

    def check(value: Any) -> Any:
        if value in names:
            raise refuse(f"received {json.dumps(value)}: {message}")
        return value

    return BeforeValidator(check)


def _whole_number_as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _ordered(spans: str) -> str:
    first, _, last = spans.partition("..")
    if last and int(last) < int(first):
        raise refuse(
            f"received {received(spans)}: the range ends before it starts",
            remedy=f"Write `{last}..{first}`.",
        )
    return spans


def _json_able(values: dict[str, Any]) -> dict[str, Any]:
    for name, value in values.items():
        for leaf in _scalars(value):
            if isinstance(leaf, float) and not math.isfinite(leaf):
                raise refuse(f"`{name}` holds {leaf}", allowed="finite numbers")
    return values


def _scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _scalars(item)
    else:
        yield value


def _database(url: str) -> str:
    if url == "sqlite":
        return url
    allowed = f"sqlite, {_SERVERS}"
    try:
        parts = urlsplit(url)
        complete = parts.hostname and parts.path.strip("/") and parts.port != 0
    except ValueError:
        raise refuse(f"received {received(url)}", allowed=allowed) from None
    if parts.password is not None or "password" in parts.query:
        raise refuse(
            "a password must not be written in a file or on the command line",
            allowed=allowed,
            remedy=f"Take it out of the URL and set {PASSWORD_VARIABLE} in the "
            "environment.",
        )
    known = parts.scheme in ("mysql", "postgresql")
    if not (known and complete) or parts.query or parts.fragment:
        raise refuse(f"received {received(url)}", allowed=allowed)
    return url


PathText = Annotated[str, PathMark(), Allowed("a path"), AfterValidator(_anchored)]
Text = Annotated[str, StringConstraints(min_length=1), Allowed("text")]
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
Module = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"),
    Allowed("the name of a module beside the YAML, such as `model`"),
]
Positive = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False
    )


class Split(_Section):
    """How rows are divided into what trains the model and what judges it."""

    by: Literal["hash", "ratio"] = Field(
        "ratio",
        description="`hash` puts rows with equal values in `keys` on the same side; "
        "`ratio` divides row by row.",
    )
    keys: Texts = Field((), description="Columns whose values decide, for `by: hash`.")
    train: Positive = Field(8, description="Parts of the rows for training.")
    eval: Positive = Field(2, description="Parts of the rows for evaluation.")

    @model_validator(mode="after")
    def _combinations(self) -> Split:
        if self.by == "hash" and not self.keys:
            raise_all(
                [
                    refuse_at(
                        ("by",),
                        "`by: hash` needs `keys`",
                        remedy="Name the columns: `keys: [customer]`; or use `ratio`.",
                    )
                ]
            )
        if self.by == "ratio" and self.keys:
            remedy = "Write `by: hash`, or remove `keys`."
            raise_all(
                [refuse_at(("keys",), "`by: ratio` reads no keys", remedy=remedy)]
            )
        return self


class Data(_Section):
    """Which files hold the rows, and how they are divided."""

    examples: PathText = Field(
        description="Files with the rows, CSV or Parquet: a glob, in which `{SPAN}`, "
        "`{DATE}` and `{VERSION}` name the portions in which data arrive."
    )
    spans: Annotated[
        str,
        BeforeValidator(_whole_number_as_text),
        StringConstraints(pattern=r"^(all|latest|[0-9]+(\.\.[0-9]+)?)$"),
        Allowed("all, latest, a number such as 3, or a range such as 1..6"),
        AfterValidator(_ordered),
        Field(json_schema_extra={"type": ["string", "integer"]}),
    ] = Field("all", description="The spans to read.")
    split: Split = Field(default_factory=Split, description="Training and evaluation.")
    prepare: (
        Annotated[
            str,
            StringConstraints(pattern=r"^[A-Za-z_][\w.]*(:[A-Za-z_]\w*)?$"),
            Allowed("`module` or `module:function`"),
        ]
        | None
    ) = Field(
        None,
        description="`module:function` (function `prepare` where none is named) that "
        "makes the data when they are missing; called with the folder of the YAML.",
    )
    on_bad_row: Annotated[
        Literal["fail"],
        _not_yet(
            ("skip", "drop", "quarantine", "warn"),
            "setting bad rows aside comes with a later version; this one stops at "
            "them: `fail`.",
        ),
    ] = Field("fail", description="What happens at a row that cannot be read.")


class Schema(_Section):
    """What the data should look like."""

    file: PathText | None = Field(
        None,
        description="A curated TFMD schema (`.pbtxt`); without one it is inferred.",
    )
    on_anomaly: Literal["stop", "warn"] = Field(
        "stop", description="What happens when the data do not fit the schema."
    )


class Transform(_Section):
    """From raw rows to the model's features."""

    module: Module = Field(description="Module with `preprocessing_fn(inputs)`.")


class Distribution(_Section):
    """On what the model trains."""

    strategy: Annotated[
        Literal["auto", "one_device"],
        _not_yet(
            (
                "mirrored",
                "multi_worker_mirrored",
                "parameter_server",
                "tpu",
                "central_storage",
            ),
            "this version trains on one device; other strategies come with a later "
            "one. Use `auto` or `one_device`.",
        ),
    ] = Field("auto", description="`auto` takes the best that this version offers.")


class EarlyStopping(_Section):
    """Ends training when a metric no longer improves."""

    monitor: Text = Field("val_loss", description="The metric that is watched.")
    patience: Annotated[int, Field(ge=0)] = Field(
        2, description="Epochs without improvement before training ends."
    )


class Callbacks(_Section):
    """What accompanies training."""

    early_stopping: EarlyStopping | None = Field(
        None, description="When training ends before its last epoch; null for never."
    )
    tensorboard: bool = Field(True, description="Whether logs for TensorBoard appear.")


class Trainer(_Section):
    """How the model is built and trained."""

    module: Module = Field(description="Module with `build_model(context)`.")
    batch_size: Positive = Field(
        256, description="Rows per step, over all replicas together."
    )
    epochs: Positive = Field(5, description="Passes over the training rows.")
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        1, description="Of weights and the order of rows."
    )
    hyperparameters: Annotated[dict[str, Any], AfterValidator(_json_able)] = Field(
        default_factory=dict,
        description="Whatever `build_model` reads from `context.hyperparameters`.",
    )
    distribution: Distribution = Field(
        default_factory=Distribution, description="On what the model trains."
    )
    callbacks: Callbacks = Field(
        default_factory=Callbacks, description="What accompanies training."
    )


class Limits(_Section):
    """What a metric must reach."""

    at_least: float | None = Field(None, description="The smallest value that passes.")
    at_most: float | None = Field(None, description="The largest value that passes.")
    may_drop: Annotated[float, Field(ge=0)] | None = Field(
        None, description="How far below the model in production it may lie."
    )
    may_rise: Annotated[float, Field(ge=0)] | None = Field(
        None, description="How far above the model in production it may lie."
    )

    @model_validator(mode="after")
    def _possible(self) -> Limits:
        low, high = self.at_least, self.at_most
        if low is not None and high is not None and low > high:
            message = f"{low} is more than at_most ({high}): nothing can pass"
            remedy = "Swap or correct the two."
            raise_all([refuse_at(("at_least",), message, remedy=remedy)])
        return self


class Bound(Limits):
    """What a metric must reach, overall and on slices."""

    slices: dict[str, Limits] = Field(
        default_factory=dict,
        description="Limits for every value of a feature, by the feature's name.",
    )
    min_examples: Annotated[int, Field(ge=0)] = Field(
        0, description="Slices with fewer rows are reported and not judged."
    )


class Evaluator(_Section):
    """How the model is judged."""

    task: Literal["binary", "multi_class", "regression"] = Field(
        "binary", description="What kind of prediction it is."
    )
    metrics: Annotated[Texts, Field(min_length=1), Allowed("a list of metrics")] = (
        Field(description="What is measured; the metrics of each task are below.")
    )
    slices: Texts = Field(
        (), description="Features by whose values the metrics are measured too."
    )
    bounds: dict[str, Bound] = Field(
        default_factory=dict,
        description="What must hold for a model to be blessed, by metric.",
    )

    @model_validator(mode="after")
    def _combinations(self) -> Evaluator:
        errors = [*self._metric_errors(), *self._bound_errors()]
        if errors:
            raise_all(errors)
        return self

    def _metric_errors(self) -> Iterator[InitErrorDetails]:
        from strategos.components.evaluator.metrics import METRICS, names

        known = names(self.task)
        for index, name in enumerate(self.metrics):
            if name in known:
                continue
            message, remedy = f"`{name}` is not a metric", ""
            if name in METRICS:
                tasks = " or ".join(sorted(METRICS[name].tasks))
                message = f"`{name}` is not defined for the task {self.task}"
                remedy = f"It is for the task {tasks}: see `evaluator.task`."
            elif near := nearest(name, METRICS):
                remedy = f"Did you mean `{near}`?"
            yield refuse_at(
                ("metrics", index), message, allowed=", ".join(known), remedy=remedy
            )

    def _bound_errors(self) -> Iterator[InitErrorDetails]:
        for metric, bound in self.bounds.items():
            if metric not in self.metrics:
                near = nearest(metric, self.metrics)
                yield refuse_at(
                    ("bounds", metric),
                    f"a bound on `{metric}`, which is not in `evaluator.metrics`",
                    allowed=", ".join(self.metrics),
                    remedy=f"Did you mean `{near}`?" if near else "Add it there.",
                )
            yield from _direction_errors(metric, bound, ("bounds", metric))
            for feature, limits in bound.slices.items():
                loc = ("bounds", metric, "slices", feature)
                yield from _direction_errors(metric, limits, loc)
                if feature not in self.slices:
                    yield refuse_at(
                        loc,
                        f"`{feature}` is not in `evaluator.slices`",
                        allowed=", ".join(self.slices) or "nothing: it is empty",
                        remedy=f"Add `{feature}` to `evaluator.slices`.",
                    )


def _direction_errors(
    metric: str, limits: Limits, loc: tuple[str, ...]
) -> Iterator[InitErrorDetails]:
    """A limit on the change for the better is a slip."""
    from strategos.components.evaluator.metrics import METRICS

    higher = METRICS[metric].higher_is_better if metric in METRICS else None
    if higher is None:
        return
    wrong, right = ("may_rise", "may_drop") if higher else ("may_drop", "may_rise")
    if getattr(limits, wrong) is not None:
        yield refuse_at(
            (*loc, wrong),
            f"{metric} is better when {'higher' if higher else 'lower'}",
            remedy=f"Use `{right}`.",
        )


class Pusher(_Section):
    """Where a blessed model goes."""

    to: PathText = Field(description="Folder for the versions of the model.")
    keep: Positive = Field(3, description="How many of the newest versions stay.")


class Run(_Section):
    """Where and how the pipeline runs."""

    root: Annotated[PathText, Field(validate_default=True)] = Field(
        "runs", description="Folder for artifacts, logs and ML Metadata."
    )
    runner: Literal["local", "beam"] = Field(
        "local",
        description="`local` starts one warm executor process; `beam` is TFX's "
        "BeamDagRunner.",
    )
    metadata: Annotated[
        str, Allowed(f"sqlite, {_SERVERS}"), AfterValidator(_database)
    ] = Field(
        "sqlite",
        description="ML Metadata: `sqlite` (a file under `root`) or the URL of a "
        f"server; its password is read from {PASSWORD_VARIABLE}.",
    )
    cache: bool = Field(True, description="Whether finished work is used again.")

    @model_validator(mode="after")
    def _combinations(self) -> Run:
        if self.metadata == "sqlite" and is_remote(self.root):
            message = f"SQLite cannot lie under the remote root {self.root}"
            remedy = "Name a server in `run.metadata`, or a local `run.root`."
            raise_all([refuse_at(("root",), message, allowed=_SERVERS, remedy=remedy)])
        return self


class Schedule(_Section):
    """When `strategos retrain --if-due` finds that a run is due."""

    max_age: (
        Annotated[
            str,
            StringConstraints(pattern=r"^[1-9][0-9]*[smhdw]$"),
            Allowed("a duration such as 12h, 7d or 2w"),
        ]
        | None
    ) = Field(None, description="Age of the newest pushed model that makes it due.")
    on_new_span: bool = Field(True, description="Whether a new span makes it due.")

    @property
    def max_age_seconds(self) -> int | None:
        """`max_age` in seconds."""
        if self.max_age is None:
            return None
        return int(self.max_age[:-1]) * _UNITS[self.max_age[-1]]


class Kubeflow(_Section):
    """What `strategos compile --target kubeflow` writes into the pipeline."""

    image: Text = Field(description="Container image that holds Strategos.")
    root: Text = Field(
        "minio://mlpipeline/v2/artifacts", description="Where artifacts go."
    )


class Vertex(_Section):
    """What `strategos compile --target vertex` writes into the pipeline."""

    project: Text = Field(description="Google Cloud project.")
    region: Text = Field("us-central1", description="Google Cloud region.")
    image: Text = Field(description="Container image that holds Strategos.")
    root: Annotated[
        str, StringConstraints(pattern="^gs://[^/]+"), Allowed("gs://BUCKET/FOLDER")
    ] = Field(description="Where artifacts go.")


class Config(_Section):
    """A pipeline: data, how a model comes of them, and when it may serve."""

    name: Annotated[
        str,
        StringConstraints(pattern=r"^([a-z][a-z0-9-]{0,62})?$"),
        Allowed("lower-case letters, digits and `-`, first a letter, at most 63"),
        AfterValidator(_default_name),
        Field(validate_default=True),
    ] = Field(
        "", description="Of the pipeline; the name of the YAML's folder if empty."
    )
    label: Text = Field(description="The column that the model predicts.")
    data: Data = Field(description="Which files hold the rows.")
    schema_: Schema = Field(
        default_factory=Schema,
        alias="schema",
        description="What the data should look like.",
    )
    transform: Transform = Field(description="From raw rows to features.")
    trainer: Trainer = Field(description="How the model is built and trained.")
    evaluator: Evaluator | None = Field(
        None, description="How the model is judged; without it no model is judged."
    )
    pusher: Pusher | None = Field(
        None, description="Where a blessed model goes; without it none is pushed."
    )
    run: Run = Field(default_factory=Run, description="Where and how it runs.")
    schedule: Schedule | None = Field(None, description="When a run is due.")
    kubeflow: Kubeflow | None = Field(None, description="For Kubeflow Pipelines.")
    vertex: Vertex | None = Field(None, description="For Vertex AI Pipelines.")

    _path: Path = PrivateAttr()
    _password: str | None = PrivateAttr(None)
    _places: dict[str, str] = PrivateAttr(default_factory=dict)

    def model_post_init(self, context: Any) -> None:
        """Keeps what the loader knows and the YAML does not say."""
        context = context or {}
        self._path = context.get("path") or Path.cwd() / "pipeline.yaml"
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

    def where(self, key: str) -> str:
        """`file:line:column` of the value of `key`, or of the nearest key above it."""
        while key and key not in self._places:
            key = key.rpartition(".")[0]
        return self._places.get(key, str(self._path))

    def runtime_parameters(self) -> dict[str, int | float | str]:
        """What a compiled pipeline takes at run time; mappings as JSON.

        `spans` is the selector (`latest`), not yet the spans that it selects.
        """
        trainer = self.trainer
        distribution = trainer.distribution.model_dump(mode="json")
        return {
            "batch_size": trainer.batch_size,
            "epochs": trainer.epochs,
            "seed": trainer.seed,
            "hyperparameters": json.dumps(trainer.hyperparameters, sort_keys=True),
            "distribution": json.dumps(distribution, sort_keys=True),
            "spans": self.data.spans,
        }

    @model_validator(mode="after")
    def _combinations(self) -> Config:
        dated = re.search(r"\{(SPAN|DATE|YYYY)", self.data.examples)
        if self.schedule and not self.schedule.max_age:
            if not self.schedule.on_new_span:
                message = "without `max_age` and `on_new_span` no run is ever due"
                remedy = "Set one of the two, or remove the section."
                raise_all([refuse_at(("schedule",), message, remedy=remedy)])
            if not dated:
                message = "a new span never comes: `data.examples` has no {SPAN}"
                remedy = "Set `max_age`, or put {SPAN} or {DATE} into the pattern."
                raise_all([refuse_at(("schedule",), message, remedy=remedy)])
        if self.data.spans not in ("all", "latest") and not dated:
            message = f"spans {self.data.spans}, but `data.examples` has no {{SPAN}}"
            remedy = "Remove `spans`, or put {SPAN} or {DATE} into the pattern."
            raise_all([refuse_at(("data", "spans"), message, remedy=remedy)])
        return self
