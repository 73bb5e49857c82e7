"""Runs a module written for TFX's own Trainer, `run_fn(fn_args)`, unchanged.

Such a module reads, distributes, trains and exports by itself. It gets the arguments
that TFX's executor passes: the transformed examples by file pattern and
`data_accessor`, steps, the paths of schema and transform graph, and where to export.
The only place of the trainer that imports TFX, because such a module does too.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow.io import gfile

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.exported import SAVED_MODEL, SERVE
from strategos.components.records import counts, tfrecords
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.distribution.strategy import Choice
from strategos.components.trainer.gang import heartbeat
from strategos.components.trainer.model.blame import blamed
from strategos.components.trainer.model.user_module import check_own_loop
from strategos.components.trainer.run.export import describe
from strategos.components.trainer.run.saved_model import SavedModel
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.transformed.graph import TransformGraph, raw_schema_file
from strategos.components.user_code import modules


def train(
    spec: WorkerSpec, cluster: ClusterSpec, choice: Choice, export_dir: str
) -> dict[str, Any]:
    """Calls the module's `run_fn`, which trains and exports.

    Args:
      spec: The training.
      cluster: All tasks, and the task of this process; the module reads
        `TF_CONFIG`.
      choice: The strategy of the settings. The module makes its own strategy, and uses
        only the processes of this one.
      export_dir: Folder for the chief's SavedModel, which is published.

    Returns:
      The facts of the training, as far as they are known.

    Raises:
      UserError: The module fails, or exports no SavedModel.
    """
    logging.getLogger("apache_beam").setLevel(logging.WARNING)  # TFX imports it
    run_fn = modules.function(spec.folder, spec.module, "run_fn")
    file = str(modules.load(spec.folder, spec.module).__file__)
    if not choice.is_synchronous:
        raise UserError(
            f"{file}: `run_fn` needs workers that take each step together, which they "
            "do not under parameter_server. Use multi_worker_mirrored, or let "
            "`build_model(context)` take the place of `run_fn`."
        )
    check_own_loop(file, spec.settings)
    if spec.settings.class_weight:
        raise UserError(
            f"{file}: has no effect on `run_fn(fn_args)`, which reads the rows itself",
            key="trainer.class_weight",
            remedy="Remove it, and pass `class_weight` to `fit` in `run_fn`.",
        )
    rows = count_rows(spec.train_files, spec.train_rows)
    if cluster.is_chief:
        events.emit("progress", message=f"training by `run_fn` of {Path(file).name}")
    with tempfile.TemporaryDirectory(prefix="exported-") as aside:
        fn_args = _fn_args(spec, rows, export_dir if cluster.is_chief else aside)
        with heartbeat.keep_alive(), blamed("`run_fn` fails", file, spec.folder):
            run_fn(fn_args)
    if cluster.is_chief:
        _check_export(export_dir, file)
    return {
        "strategy": choice.name,
        "reason": f"{choice.reason}; `run_fn(fn_args)` makes its own",
        "replicas": choice.replicas or 1,
        "workers": choice.workers,
        "rows": rows,
        "global_batch": spec.batch_size,
        "seed": spec.seed,
        "steps": fn_args.train_steps,
        "history": {},
        "exported": export_dir,
    }


def publish(spec: WorkerSpec, exported: str, folder: str) -> None:
    """Copies a SavedModel unchanged, and describes the columns that it takes.

    Args:
      spec: The training.
      exported: Folder of the SavedModel.
      folder: Folder that gets the copy.
    """
    for path, _, files in gfile.walk(exported):
        target = folder + path[len(exported) :]
        gfile.makedirs(target)
        for file in files:
            gfile.copy(f"{path}/{file}", f"{target}/{file}")
    graph = TransformGraph(tft.TFTransformOutput(spec.transform_graph))
    known = graph.raw_columns_of(graph.raw_spec)
    parsed = (SavedModel(exported).parsed_columns(SERVE) & known) or known
    used = graph.raw_columns_of(_features(graph, spec)) & parsed
    describe(
        folder,
        raw_schema_file(spec.transform_graph),
        spec.label,
        used,
        unused=parsed - used,
        null_values=spec.null_values,
        reading=spec.reading,
    )


def _features(graph: TransformGraph, spec: WorkerSpec) -> set[str]:
    """Raw features that outputs are computed from, without label and weight."""
    columns = spec.target.columns
    outputs = {
        name
        for name in graph.outputs
        if name not in (*columns, spec.weight)
        and not graph.raw_features_of([name]) & {*columns}
    }
    return graph.raw_features_of(outputs)


def _fn_args(spec: WorkerSpec, rows: int, export_dir: str) -> Any:
    """The arguments that TFX's Trainer passes to a `run_fn`."""
    try:
        from tfx.components.trainer import fn_args_utils
        from tfx.components.util import tfxio_utils
        from tfx.types import standard_artifacts
    except ImportError as error:
        raise UserError(
            f"`run_fn(fn_args)` needs TFX, which is not installed here ({error}). "
            "Install it, or write `build_model(context)` instead."
        ) from error
    # Like TFX's executor, from an Examples artifact: TFRecords of tf.Example.
    examples, why = [standard_artifacts.Examples()], ["Trainer"]
    examples[0].set_string_custom_property("payload_format", "FORMAT_TF_EXAMPLE")
    data_accessor = fn_args_utils.DataAccessor(
        tf_dataset_factory=tfxio_utils.get_tf_dataset_factory_from_artifact(
            examples, why
        ),
        record_batch_factory=tfxio_utils.get_record_batch_factory_from_artifact(
            examples, why
        ),
        data_view_decode_fn=None,
    )
    return fn_args_utils.FnArgs(
        train_files=_patterns(spec.train_files),
        eval_files=_patterns(spec.eval_files),
        train_steps=spec.epochs * -(-rows // spec.batch_size),
        eval_steps=-(-count_rows(spec.eval_files, spec.eval_rows) // spec.batch_size),
        schema_path=spec.schema_file,
        schema_file=spec.schema_file,
        transform_graph_path=spec.transform_graph,
        transform_output=spec.transform_graph,
        data_accessor=data_accessor,
        serving_model_dir=export_dir,
        model_run_dir=spec.log_dir,
        custom_config=dict(spec.hyperparameters),
    )


def _patterns(files: Sequence[str]) -> list[str]:
    return sorted({f"{file.rpartition('/')[0]}/*" for file in files})


def count_rows(files: Sequence[str], expected: int = 0) -> int:
    """Counts the rows of TFRecord files, without a TensorFlow operation.

    The module may make a strategy of several workers, which must be done before the
    first operation.

    Args:
      files: TFRecord files.
      expected: Number of rows that were written to the files. Default: unknown.

    Raises:
      UserError: The files do not have all of these rows.
    """
    rows = sum(len(some) for file in files for some in tfrecords.read(file))
    counts.check(os.path.dirname(files[0]) if files else "", rows, expected)
    return rows


def _check_export(folder: str, file: str) -> None:
    if not gfile.exists(f"{folder}/{SAVED_MODEL}"):
        names = gfile.listdir(folder) if gfile.exists(folder) else []
        raise UserError(
            f"{file}: `run_fn` ended without a SavedModel in "
            f"`fn_args.serving_model_dir`; it has: {', '.join(names) or 'nothing'}. "
            "End it with `model.save(fn_args.serving_model_dir, save_format='tf', "
            "signatures=…)` or `tf.saved_model.save`."
        )
    signatures = SavedModel(folder).signatures()
    logging.info("the exported model has the signatures %s", signatures)
    takes = signatures.get(SERVE)
    if takes is None or len(takes) != 1 or takes[0] != (tf.string, 1):
        how = f"`{SERVE}` takes other inputs" if takes else f"no `{SERVE}`"
        events.emit(
            "warning",
            message=f"{file}: the exported model has {how} (signatures: "
            f"{', '.join(sorted(signatures)) or 'none'}). Evaluator, InfraValidator "
            f"and `strategos predict` call `{SERVE}` with serialized tf.Examples "
            "(`examples` string[batch]) and will reject it.",
        )
