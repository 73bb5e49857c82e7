"""InfraValidator: does the exported model load and answer?"""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

from strategos.components.infra_validator import executor


class InfraValidatorSpec(types.ComponentSpec):
    """A model and raw examples to ask it, a blessing out."""

    PARAMETERS = {"requests": ExecutionParameter(type=int)}
    INPUTS = {
        "model": ChannelParameter(type=standard_artifacts.Model),
        "examples": ChannelParameter(type=standard_artifacts.Examples),
        "schema": ChannelParameter(type=standard_artifacts.Schema),
    }
    OUTPUTS = {"blessing": ChannelParameter(type=standard_artifacts.InfraBlessing)}


class InfraValidator(base_component.BaseComponent):
    """Loads a model in a fresh process and asks it real raw examples.

    Usage:

        infra_validator = InfraValidator(
            model=trainer.outputs["model"],
            examples=example_gen.outputs["examples"],      # raw ones
            schema=schema_gen.outputs["schema"],
        )

    The process imports TensorFlow alone, as a server would: the model must have the
    signature `serving_default`, and answer each example by finite numbers. TFX's
    InfraValidator needs a model server in Docker or Kubernetes for that.

    Outputs:
      blessing: As TFX's InfraValidator leaves it. A model that fails stops the run.
    """

    SPEC_CLASS = InfraValidatorSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        *,
        model: types.BaseChannel,
        examples: types.BaseChannel,
        schema: types.BaseChannel,
        requests: int = 64,
    ):
        """Builds the component.

        Args:
          model: The exported model.
          examples: Raw examples, asked from the split `eval`.
          schema: Of the raw examples.
          requests: How many examples to ask.
        """
        super().__init__(
            spec=InfraValidatorSpec(
                model=model,
                examples=examples,
                schema=schema,
                requests=requests,
                blessing=types.Channel(type=standard_artifacts.InfraBlessing),
            )
        )
