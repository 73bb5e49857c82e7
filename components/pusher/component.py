"""Pusher: publishes a blessed model for a model server."""

from __future__ import annotations

import json

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.proto import pusher_pb2
from tfx.types import standard_artifacts, standard_component_specs
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

from strategos.components.pusher import CANARY, executor


class PusherSpec(standard_component_specs.PusherSpec):
    """TFX's PusherSpec plus the inputs and parameters of `Pusher`."""

    PARAMETERS = {
        **standard_component_specs.PusherSpec.PARAMETERS,
        "keep": ExecutionParameter(type=int),
        "candidate": ExecutionParameter(type=str),
        "baseline": ExecutionParameter(type=str),
    }
    INPUTS = {
        **standard_component_specs.PusherSpec.INPUTS,
        "examples": ChannelParameter(type=standard_artifacts.Examples, optional=True),
        "evaluation": ChannelParameter(
            type=standard_artifacts.ModelEvaluation, optional=True
        ),
    }


class Pusher(base_component.BaseComponent):
    """Publishes a model as the next numbered version of a serving folder.

    Usage:

        pusher = Pusher(
            model=trainer.outputs["model"],
            model_blessing=evaluator.outputs["blessing"],
            infra_blessing=infra_validator.outputs["blessing"],
            destination="serving/flights", keep=3, candidate="", baseline="",
        )

    Differences from TFX's Pusher: a version appears atomically, its number (unix
    seconds) is higher than all before, and old versions are removed. Each version has a
    manifest (`manifest.of`).

    With `live`, the destination is the canary slot of another serving folder. A model
    that is live there, that a rollback withdrew or that was aborted as a canary is not
    pushed.

    Outputs:
      pushed_model: On a local file system a symlink to the version, so that a removed
        version invalidates the cached push. Properties: `pushed`,
        `pushed_destination`, `pushed_version`, `candidate`, `baseline`; `slot` for a
        canary.
    """

    SPEC_CLASS = PusherSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        *,
        model: types.BaseChannel,
        destination: str,
        keep: int,
        candidate: str | RuntimeParameter,
        baseline: str | RuntimeParameter,
        model_blessing: types.BaseChannel | None = None,
        infra_blessing: types.BaseChannel | None = None,
        examples: types.BaseChannel | None = None,
        evaluation: types.BaseChannel | None = None,
        endpoint: str = "",
        live: str = "",
        slot: str = CANARY,
    ):
        """Builds the component.

        Args:
          model: The model to push.
          destination: The serving folder, a path or a URL; versions are its subfolders.
          keep: Number of models to keep, the new one included, see `Target.push`.
          candidate: Key of the data, code and settings behind the model; only recorded.
          baseline: Folder of the model that the candidate was compared with, or "none";
            only recorded.
          model_blessing: The Evaluator's verdict. Without one, the model counts as
            blessed.
          infra_blessing: The InfraValidator's verdict. Without one, the model counts as
            blessed.
          examples: The data that the model was trained on, for the manifest.
          evaluation: The model's evaluation, for the manifest.
          endpoint: JSON of an `endpoint.Endpoint` to deploy the version to; "" for
            none.
          live: The serving folder, if `destination` is its canary slot; "" if
            `destination` itself serves.
          slot: With `live`, the reason that the model waits: `CANARY` or `APPROVAL`.
        """
        custom = {"endpoint": endpoint} if endpoint else {}
        custom |= {"live": live, "slot": slot} if live else {}
        push_destination = pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=destination)
        )
        super().__init__(
            PusherSpec(
                model=model,
                model_blessing=model_blessing,
                infra_blessing=infra_blessing,
                examples=examples,
                evaluation=evaluation,
                push_destination=push_destination,
                keep=keep,
                candidate=candidate,
                baseline=baseline,
                custom_config=json.dumps(custom) if custom else None,
                pushed_model=types.Channel(type=standard_artifacts.PushedModel),
            )
        )
