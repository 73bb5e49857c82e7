"""Trainer: trains a Keras model in worker processes and exports it."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter
from tfx.types.system_executions import Train

from strategos.components import node_ids, runtime_parameters
from strategos.components.trainer import executor


class TrainerSpec(types.ComponentSpec):
    """Takes transformed examples and settings; writes a model and its training run."""

    PARAMETERS = {
        "user_module": ExecutionParameter(type=str),
        "label": ExecutionParameter(type=str),
        "weight": ExecutionParameter(type=str, optional=True),
        "settings": ExecutionParameter(type=str),
        "null_values": ExecutionParameter(type=str),
        "reading": ExecutionParameter(type=str),
        **{
            each.argument: ExecutionParameter(type=each.passed_type)
            for each in runtime_parameters.taken_by(node_ids.TRAINER)
        },
    }
    INPUTS = {
        "examples": ChannelParameter(type=standard_artifacts.Examples),
        "transform_graph": ChannelParameter(type=standard_artifacts.TransformGraph),
        "schema": ChannelParameter(type=standard_artifacts.Schema),
    }
    OUTPUTS = {
        "model": ChannelParameter(type=standard_artifacts.Model),
        "model_run": ChannelParameter(type=standard_artifacts.ModelRun),
    }
    TYPE_ANNOTATION = Train


class Trainer(base_component.BaseComponent):
    """Trains the model that the user's `build_model(context)` returns.

    Usage:

        trainer = Trainer(
            examples=transform.outputs["transformed_examples"],
            transform_graph=transform.outputs["transform_graph"],
            schema=schema_gen.outputs["schema"],
            user_module='{"folder": …, "module": "model", "fingerprint": …}',
            label="late",
            settings='{"callbacks": {}}',
            # the Trainer's `runtime_parameters`:
            batch_size=512, epochs=5, seed=1, hyperparameters='{"units": [64, 32]}',
            distribution='{"strategy": "auto"}', warm_start="none",
        )

    Launcher, time-outs, restarts and checkpoints are no parameters: they change no
    result, see `operation.py`.

    Outputs:
      model: `Format-Serving/` (a SavedModel, see `export.py`), `Format-Weights/` and
        `trainer.json`. Its facts are custom properties as well: `strategy`, `reason`,
        `replicas`, `workers`, `global_batch`, `steps`, `examples`,
        `examples_per_second`, `restarts`, `seed`, `rows`, `parameters`, `history`,
        `evaluation`, `warm_start`, `phases` (if there are any); `trainer.json` also has
        `weights_epoch`, the epoch that was evaluated with the exported weights, or
        null.
      model_run: TensorBoard's events.
    """

    SPEC_CLASS = TrainerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        *,
        examples: types.BaseChannel,
        transform_graph: types.BaseChannel,
        schema: types.BaseChannel,
        user_module: str,
        label: str,
        weight: str = "",
        settings: str = "{}",
        null_values: str = "[]",
        reading: str = "{}",
        **parameters: int | str | RuntimeParameter,
    ):
        """Builds the component.

        Args:
          examples: Transformed examples with the splits `train` and `eval`, and perhaps
            `validation`, on which training evaluates then instead of on `eval`.
          transform_graph: Graph that transformed the examples.
          schema: Schema of the raw examples.
          user_module: JSON: `folder`, `module` and `fingerprint` of the user's code;
            no `folder` where the environment names it (see `workload_paths`). `files`,
            if there are any, lists `trainer.files`.
          label: The label among the transformed features, as `Label.text`.
          weight: Name of the feature that weights the rows; "" (default) for none.
          settings: JSON of `spec.Settings`: all other settings that change results.
          null_values: See ExampleGen; the exported model keeps them.
          reading: Likewise.
          **parameters: A value for each of the Trainer's `runtime_parameters`,
            mappings as JSON; `spec.WorkerSpec` explains them.
            `warm_start` is "none" for fresh weights, or the hash of a folder that the
            environment names (see `workload_paths`).
        """
        spec = TrainerSpec(
            examples=examples,
            transform_graph=transform_graph,
            schema=schema,
            user_module=user_module,
            label=label,
            weight=weight or None,
            settings=settings,
            null_values=null_values,
            reading=reading,
            **parameters,
            model=types.Channel(type=standard_artifacts.Model),
            model_run=types.Channel(type=standard_artifacts.ModelRun),
        )
        super().__init__(spec=spec)
