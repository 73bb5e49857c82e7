"""The same run with TFX's own components, runner and Trainer, on examples/flights.

    python stock_tfx.py DATA ROOT

Part of whole_run; also runs alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

REPOSITORY = Path(__file__).parents[2]
FLIGHTS = REPOSITORY / "examples" / "flights"
LABEL, BATCH = "late", 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="a folder of CSV files")
    parser.add_argument("root")
    arguments = parser.parse_args()
    # TFX's Trainer imports the modules by name, here and in Beam's workers.
    sys.path[:0] = [str(FLIGHTS), str(Path(__file__).parent)]
    from tfx import v1 as tfx

    metadata = tfx.orchestration.metadata.sqlite_metadata_connection_config(
        f"{arguments.root}/metadata.sqlite"
    )
    pipeline = tfx.dsl.Pipeline(
        pipeline_name="flights",
        pipeline_root=arguments.root,
        components=components(arguments.data, arguments.root),
        metadata_connection_config=metadata,
    )
    tfx.orchestration.LocalDagRunner().run(pipeline)


def components(data: str, root: str) -> list:
    import tensorflow_model_analysis as tfma
    from tfx import v1 as tfx

    splits = [("train", 8), ("eval", 2)]
    output = tfx.proto.Output(
        split_config=tfx.proto.SplitConfig(
            splits=[
                tfx.proto.SplitConfig.Split(name=name, hash_buckets=buckets)
                for name, buckets in splits
            ]
        )
    )
    examples = tfx.components.CsvExampleGen(input_base=data, output_config=output)
    statistics = tfx.components.StatisticsGen(examples=examples.outputs["examples"])
    schema = tfx.components.ImportSchemaGen(
        schema_file=str(REPOSITORY / "schemas" / "flights.pbtxt")
    )
    validator = tfx.components.ExampleValidator(
        statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"]
    )
    transform = tfx.components.Transform(
        examples=examples.outputs["examples"],
        schema=schema.outputs["schema"],
        preprocessing_fn="preprocessing.preprocessing_fn",
    )
    trainer = tfx.components.Trainer(
        run_fn="stock_tfx.run_fn",
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema.outputs["schema"],
        train_args=tfx.proto.TrainArgs(splits=["train"]),
        eval_args=tfx.proto.EvalArgs(splits=["eval"]),
    )
    metrics = [tfma.MetricConfig(class_name="ExampleCount")]
    metrics += [
        tfma.MetricConfig(class_name=name)
        for name in ("AUC", "BinaryAccuracy", "Calibration")
    ]
    evaluator = tfx.components.Evaluator(
        examples=examples.outputs["examples"],
        model=trainer.outputs["model"],
        eval_config=tfma.EvalConfig(
            model_specs=[
                tfma.ModelSpec(
                    signature_name="serving_default",
                    label_key=LABEL,
                )
            ],
            slicing_specs=[
                tfma.SlicingSpec(),
                *(
                    tfma.SlicingSpec(feature_keys=[name])
                    for name in ("carrier", "origin", "month")
                ),
            ],
            metrics_specs=[tfma.MetricsSpec(metrics=metrics)],
        ),
    )
    pusher = tfx.components.Pusher(
        model=trainer.outputs["model"],
        push_destination=tfx.proto.PushDestination(
            filesystem=tfx.proto.PushDestination.Filesystem(
                base_directory=f"{root}/serving"
            )
        ),
    )
    return [
        *(examples, statistics, schema, validator),
        *(transform, trainer, evaluator, pusher),  # InfraValidator would need Docker
    ]


def run_fn(fn_args) -> None:
    """Trains the model of examples/flights as TFX's template does."""
    import model as flights
    import tensorflow as tf
    import tensorflow_transform as tft

    output = tft.TFTransformOutput(fn_args.transform_output)
    splits = {}
    for name, files in (("train", fn_args.train_files), ("eval", fn_args.eval_files)):
        splits[name] = tf.data.experimental.make_batched_features_dataset(
            list(files),
            BATCH,
            output.transformed_feature_spec(),
            lambda found: tf.data.TFRecordDataset(found, "GZIP"),
            num_epochs=1,
            shuffle=name == "train",
            label_key=LABEL,
        )
    rows = sum(len(labels) for _, labels in splits["train"])
    epochs, steps = 4, -(-rows // BATCH)
    built = flights.build_model(_Context(output, epochs, steps))
    stop = tf.keras.callbacks.EarlyStopping("val_auc", patience=2, mode="max")
    built.fit(
        splits["train"],
        epochs=epochs,
        validation_data=splits["eval"],
        callbacks=[stop],
        verbose=2,
    )
    built.layer = output.transform_features_layer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def serve(examples):
        spec = output.raw_feature_spec()
        spec.pop(LABEL)
        features = built.layer(tf.io.parse_example(examples, spec))
        return {"outputs": built(features)}

    built.save(fn_args.serving_model_dir, signatures={"serving_default": serve})


class _Context:
    """The attributes of the context that the example's `build_model` reads."""

    def __init__(self, output, epochs: int, steps_per_epoch: int):
        self._output = output
        self.epochs, self.steps_per_epoch = epochs, steps_per_epoch
        self.hyperparameters = {"units": [64, 32], "learning_rate": 3e-3}

    def inputs(self) -> dict:
        import tensorflow as tf

        spec = self._output.transformed_feature_spec()
        return {
            name: tf.keras.Input(each.shape, dtype=each.dtype, name=name)
            for name, each in spec.items()
            if name != LABEL
        }

    def vocabulary_size(self, name: str) -> int:
        return self._output.vocabulary_size_by_name(name)


if __name__ == "__main__":
    main()
