"""InfraValidator: checks that the exported model loads and predicts."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

from strategos.components.infra_validator import executor


class InfraValidatorSpec(types.ComponentSpec):
    """Takes a model and raw examples; writes a blessing."""

    PARAMETERS = {"requests": ExecutionParameter(type=int)}
    INPUTS = {
        "model": ChannelParameter(type=standard_artifacts.Model),
        "examples": ChannelParameter(type=standard_artifacts.Examples),
        "schema": ChannelParameter(type=standard_artifacts.Schema),
    }
    OUTPUTS = {"blessing": ChannelParameter(type=standard_artifacts.InfraBlessing)}


class InfraValidator(base_component.BaseComponent):
    """Loads a model in a fresh process and calls it with real raw examples.

    Usage:

        infra_validator = InfraValidator(
            model=trainer.outputs["model"],
            examples=example_gen.outputs["examples"],      # raw ones
            schema=schema_gen.outputs["schema"],
        )

    The process imports only TensorFlow, as a server would: the model must have the
    signature `serving_default`, and return finite numbers for each example. TFX's
    InfraValidator needs a model server in Docker or Kubernetes for that.

    Outputs:
      blessing: In the form of TFX's InfraValidator. A model that fails stops the run.
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
          examples: Raw examples; the split `eval` is used.
          schema: Schema of the raw examples.
          requests: Number of examples to call the model with.
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
