"""BulkInferrer: predicts files with the model of a run."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

from strategos.components.bulk_inferrer import executor


class BulkInferrerSpec(types.ComponentSpec):
    """Inputs, parameters and output of `BulkInferrer`."""

    PARAMETERS = {
        "pattern": ExecutionParameter(type=str),
        "predicted_spans": ExecutionParameter(type=str),
        "destination": ExecutionParameter(type=str),
        "format": ExecutionParameter(type=str),
        "columns": ExecutionParameter(type=str),
        "reading": ExecutionParameter(type=str),
        "readers": ExecutionParameter(type=str),
        "pipeline": ExecutionParameter(type=str),
    }
    INPUTS = {
        "model": ChannelParameter(type=standard_artifacts.Model),
        "model_blessing": ChannelParameter(
            type=standard_artifacts.ModelBlessing, optional=True
        ),
        "pushed_model": ChannelParameter(
            type=standard_artifacts.PushedModel, optional=True
        ),
    }
    OUTPUTS = {
        "inference_result": ChannelParameter(type=standard_artifacts.InferenceResult)
    }


class BulkInferrer(base_component.BaseComponent):
    """Predicts data files of any size, as `strategos predict --output` does.

    Usage:

        bulk_inferrer = BulkInferrer(
            model=trainer.outputs["model"],
            model_blessing=evaluator.outputs["blessing"],
            pushed_model=pusher.outputs["pushed_model"],
            pattern="/data/new/{DATE}.parquet",
            predicted_spans=choose("/data/new/{DATE}.parquet", "latest"),
            destination="/data/scored", format="parquet", columns='["id"]',
            reading="{}", pipeline="flights",
        )

    Differences from TFX's BulkInferrer: it reads data files with their columns, without
    an ExampleGen of their own; writes tables with a manifest; and goes on with the
    files that are complete after a kill.

    Outputs:
      inference_result: `_manifest.json` of the predictions. Properties: `predictions`,
        the folder; `rows`; `rejected`. Without a blessed and pushed model it is empty.
    """

    SPEC_CLASS = BulkInferrerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        *,
        model: types.BaseChannel,
        predicted_spans: str | RuntimeParameter,
        destination: str,
        format: str,
        columns: str,
        reading: str,
        pipeline: str,
        pattern: str = "",
        readers: str = "",
        model_blessing: types.BaseChannel | None = None,
        pushed_model: types.BaseChannel | None = None,
    ):
        """Builds the component.

        Args:
          model: The model that predicts.
          predicted_spans: From `data_files.predicted_spans.choose`.
          destination: Folder for the folders of predictions, a path or a URL.
          format: A name in `predict.batch.formats.FORMATS`.
          columns: JSON list of the columns to write beside the predictions.
          reading: As for ExampleGen; what happens to bad rows is taken from it.
          pipeline: The pipeline's name, for the manifest.
          pattern: Absolute glob of the data; "" takes it from the environment.
          readers: Versions of the readers of the data that are plug-ins.
          model_blessing: The Evaluator's verdict. Without one, the model counts as
            blessed.
          pushed_model: Output of the Pusher. Without one, the model needs no push.
        """
        super().__init__(
            BulkInferrerSpec(
                model=model,
                model_blessing=model_blessing,
                pushed_model=pushed_model,
                pattern=pattern,
                predicted_spans=predicted_spans,
                destination=destination,
                format=format,
                columns=columns,
                reading=reading,
                readers=readers,
                pipeline=pipeline,
                inference_result=types.Channel(type=standard_artifacts.InferenceResult),
            )
        )
