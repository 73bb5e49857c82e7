"""The operation of a pipeline: schedule, targets of pushes, notifications."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from strategos.components.plugins import Registry
from strategos.components.plugins.notification import Notification
from strategos.components.push_targets import targets
from strategos.components.push_targets.endpoint import Endpoint
from strategos.components.wording import nearest
from strategos.pipeline.config.data_files.gates import Distance
from strategos.pipeline.config.evaluator import Limits
from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.plugins import chosen
from strategos.pipeline.config.problems import reject
from strategos.pipeline.config.types import (
    CountOrNever,
    Cron,
    Duration,
    PathText,
    Positive,
    Section,
    Text,
    Texts,
    TimeZone,
    finite,
    seconds,
)

WEBHOOK_VARIABLE = "STRATEGOS_WEBHOOK"
"""The environment variable that holds the URL of `notify.webhook`."""

NOTIFIED = (
    "pipeline",
    "run_id",
    "outcome",
    "reason",
    "error",
    "metrics",
    "pushed",
    "canary",
    "log",
)
"""The keys of the JSON object that `notify` sends, also placeholders of its template.
"""

PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_]+)\}")
"""A placeholder of `notify.template`, such as `{outcome}`."""


def with_texts(template: Any, replaced: Callable[[str], str]) -> Any:
    """Returns a template with each of its texts replaced; keys stay.

    Args:
      template: Mappings, lists, texts, numbers and booleans, as YAML has them.
      replaced: Maps a text to another one.
    """
    if isinstance(template, dict):
        return {key: with_texts(value, replaced) for key, value in template.items()}
    if isinstance(template, list):
        return [with_texts(value, replaced) for value in template]
    return replaced(template) if isinstance(template, str) else template


def _known_placeholders(text: str) -> str:
    for name in PLACEHOLDER.findall(text):
        if name not in NOTIFIED:
            near = nearest(name, NOTIFIED)
            raise reject(
                f"unknown placeholder `{{{name}}}`",
                expected=", ".join(f"{{{each}}}" for each in NOTIFIED),
                remedy=f"Did you mean `{{{near}}}`?" if near else "",
            )
    return text


def _fillable(template: dict[str, Any]) -> dict[str, Any]:
    with_texts(finite(template), _known_placeholders)
    return template


NOTIFICATIONS: Registry[Notification] = Registry(
    "strategos.notifications",
    Notification,
    {
        "command": "strategos.pipeline.run.notification:Command",
        "webhook": "strategos.pipeline.run.notification:Webhook",
    },
)
"""Ways to tell how a run ended, by name."""


class Schedule(Section):
    """When `strategos retrain --if-due` finds that a run is due."""

    new_spans: CountOrNever = Field(
        "1",
        description="Number of spans, new since the last run, that makes a run due; "
        "with `never`, new spans do not.",
    )
    drift: Distance | None = Field(
        None,
        description="A run is due if the distance of a new span from the newest data "
        "of the model in production is larger. By default, none is computed.",
    )
    metrics: dict[str, Limits] = Field(
        default_factory=dict,
        description="A run is due if a metric of the model in production on the rows "
        "of a new span is out of these bounds, by metric.",
    )
    cron: Cron | None = Field(
        None,
        description="Times at which a run is due: minute, hour, day of the month, "
        "month and day of the week. One run makes up for all times that were missed.",
    )
    timezone: TimeZone = Field("UTC", description="Time zone of `cron`.")
    max_age: Duration | None = Field(
        None, description="Age of the newest pushed model at which a run is due."
    )
    on_change: bool = Field(
        False,
        description="Whether a change of settings or code, the user's or Strategos', "
        "makes a run due.",
    )
    retry_after: Duration = Field(
        "10m",
        description="Time from the end of a failed run to the next attempt; doubles "
        "with each further failure in a row, up to a day.",
    )

    def tick_after(self, seconds: float) -> float | None:
        """The first time of `cron` after a time; None without `cron`.

        Args:
          seconds: Unix seconds.

        Returns:
          Unix seconds.
        """
        if self.cron is None:
            return None
        from cronsim import CronSim

        after = datetime.datetime.fromtimestamp(seconds, ZoneInfo(self.timezone))
        return next(CronSim(self.cron, after)).timestamp()

    @property
    def wanted_spans(self) -> int | None:
        """`new_spans` as a number; None for `never`."""
        return None if self.new_spans == "never" else int(self.new_spans)

    @property
    def max_age_seconds(self) -> int | None:
        """`max_age` in seconds; None where it is not set."""
        return None if self.max_age is None else seconds(self.max_age)

    @property
    def retry_after_seconds(self) -> int:
        """`retry_after` in seconds."""
        return seconds(self.retry_after)

    @property
    def ever_due(self) -> bool:
        """Whether anything but a new span, or the first model, makes a run due."""
        return bool(self.cron or self.max_age or self.on_change)


class Notify(Section):
    """Recipients of a message about the end of a run, besides the terminal.

    The message is a JSON object with `pipeline`, `run_id`, `outcome`, `reason`,
    `error`, `metrics`, `pushed`, `canary` and `log`.
    """

    command: Texts = Field(
        (),
        description="A program with its arguments, called in the folder of the YAML; "
        "reads the JSON from its standard input.",
    )
    plugins: Annotated[dict[str, Any], chosen(NOTIFICATIONS)] = Field(
        default_factory=dict,
        description="Notifications of plug-ins, by name, each with its settings.",
    )
    webhook: bool = Field(
        False,
        description="Whether to POST the JSON to the URL in the environment variable "
        f"{WEBHOOK_VARIABLE}. Such URLs are secrets, so they are not written here.",
        validate_default=True,
    )
    template: Annotated[dict[str, Any], AfterValidator(_fillable)] | None = Field(
        None,
        description="JSON for `webhook` in place of that object, such as `{text: "
        '"{pipeline}: {outcome} {error}"}` for Slack. In its texts, the keys of the '
        "object in braces stand for their values.",
    )
    on: Annotated[
        tuple[Literal["success", "failure", "not_blessed"], ...], Field(strict=False)
    ] = Field(
        ("success", "failure", "not_blessed"),
        description="Outcomes that are reported: `success` (blessed, or nothing was "
        "evaluated), `failure`, `not_blessed` (a gate ended the run). Interrupted runs "
        "are not reported.",
    )
    timeout: Duration = Field(
        "30s",
        description="Time allowed for the program, for the whole of the request, and "
        "for each plug-in.",
    )

    @field_validator("webhook")
    @classmethod
    def _tells_someone(cls, webhook: bool, info: ValidationInfo) -> bool:
        others = info.data.get("command", ("",)), info.data.get("plugins", ("",))
        if not webhook and not any(others):
            raise reject("the section sets neither `command` nor `webhook`")
        return webhook

    @field_validator("template")
    @classmethod
    def _is_sent(
        cls, template: dict[str, Any] | None, info: ValidationInfo
    ) -> dict[str, Any] | None:
        if template is not None and not info.data.get("webhook", True):
            raise reject("only `webhook` sends it", remedy="Set `webhook: true`.")
        return template

    @property
    def timeout_seconds(self) -> int:
        """`timeout` in seconds."""
        return seconds(self.timeout)


class VertexEndpoint(Section):
    """A Vertex AI endpoint that serves the newest version of `pusher.to`."""

    name: Annotated[
        str,
        StringConstraints(pattern=r"^projects/[^/]+/locations/[^/]+/endpoints/[^/]+$"),
        Allowed("projects/PROJECT/locations/REGION/endpoints/ID"),
    ] = Field(description="Resource name of an existing endpoint.")
    image: Text = Field(
        description="Container image of the model server, such as "
        "`us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest`."
    )
    machine: Text = Field("n1-standard-2", description="Type of the machine.")
    timeout: Duration = Field(
        "1h", description="Time allowed for each of upload and deployment."
    )

    def settings(self) -> Endpoint:
        """The endpoint in the form for the Pusher."""
        duration = seconds(self.timeout)
        return Endpoint(self.name, self.image, self.machine, duration)


def _is_inside(path: str, folder: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


class Pusher(Section):
    """Where blessed models are pushed to."""

    to: PathText = Field(
        examples=["s3://bucket/serving"],
        description="Folder for the pushed versions of the model: a path, "
        "`s3://BUCKET/FOLDER` or `gs://BUCKET/FOLDER`.",
    )
    keep: Positive = Field(
        3,
        description="Number of newest models that stay; copies that rollbacks make "
        "do not count.",
    )
    canary: PathText | None = Field(
        None,
        description="Folder for one model on trial, in the forms of `to`. Blessed "
        "models are then pushed there, and to `to` by `strategos canary promote`.",
    )
    approval: bool = Field(
        False,
        description="Whether the model in `canary` waits for a person: `strategos "
        "models approve` makes it live, `veto` withdraws it. A run that leaves one "
        "there ends with exit code 3.",
    )
    endpoint: VertexEndpoint | None = Field(
        None,
        description="Vertex AI endpoint to deploy each pushed version to, with all "
        "traffic; `to` must be on `gs://`.",
    )

    @property
    def target(self) -> targets.Target:
        """`to`, where models serve."""
        return targets.of(self.to)

    @property
    def slot(self) -> targets.Target | None:
        """`canary`, for the model on trial; None without."""
        return targets.of(self.canary) if self.canary else None

    @property
    def folders(self) -> dict[str, str]:
        """The folders that models are pushed to, by key path."""
        slot = {"pusher.canary": self.canary} if self.canary else {}
        return {"pusher.to": self.to, **slot}

    @field_validator("canary")
    @classmethod
    def _is_apart(cls, canary: str | None, info: ValidationInfo) -> str | None:
        to = info.data.get("to")
        if canary and to and (_is_inside(to, canary) or _is_inside(canary, to)):
            raise reject(
                f"models on trial must be apart from those that serve, {to}",
                remedy="Name another folder, such as `pusher.to` with `-canary`.",
            )
        return canary

    @field_validator("approval")
    @classmethod
    def _has_a_folder(cls, approval: bool, info: ValidationInfo) -> bool:
        if approval and not info.data.get("canary"):
            raise reject(
                "the model that waits needs a folder, and `pusher.canary` is not set",
                remedy="Set it, such as to `pusher.to` with `-canary`.",
            )
        return approval

    @field_validator("endpoint")
    @classmethod
    def _reads_the_target(
        cls, endpoint: VertexEndpoint | None, info: ValidationInfo
    ) -> VertexEndpoint | None:
        to = info.data.get("to", "gs://")
        if endpoint and not to.startswith("gs://"):
            raise reject(
                f"Vertex AI cannot read models from `pusher.to`, {to}",
                remedy="Set `pusher.to` to gs://BUCKET/FOLDER.",
            )
        if endpoint and info.data.get("canary"):
            raise reject(
                "an endpoint cannot be combined with `pusher.canary`: it serves `to`",
                remedy="Remove one of the two. On Vertex AI, split the traffic of the "
                "endpoint instead.",
            )
        return endpoint
