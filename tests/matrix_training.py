"""Trains cells of the matrix twice: as the product does, and by plain Keras `fit`.

A process of the matrix trains one cell after the other under one strategy, which is
made once. Each answer is a line of JSON: what both measured, how far their weights are
apart, and what the exported model answers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import functools
import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import autograph, keras3, optimizers
from strategos.components.trainer.data import distributed
from strategos.components.trainer.data.split import Split
from strategos.components.trainer.distribution import strategy
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.loop.state import saved_weights
from strategos.components.trainer.loop.training import Training
from strategos.components.trainer.model import workload
from strategos.components.trainer.model.replicas import uneven_batches
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.run import session
from strategos.components.trainer.spec import Settings, WorkerSpec

PLATEAU = {"monitor": "val_loss", "patience": 0, "factor": 0.3, "min_delta": 0.02}
EPOCHS = 3
ANSWERED = 64  # rows
SECONDS = 300  # for a cell

Cell = dict[str, Any]


def settings(cell: Cell) -> Settings:
    """The settings of the run that a cell stands for."""
    callbacks: dict[str, Any] = {}
    if cell["rate"] == "plateau":
        callbacks["reduce_learning_rate"] = PLATEAU
    if cell["keep"] == "best_checkpoint":
        callbacks["best_checkpoint"] = {"monitor": "val_loss"}
    if cell["keep"] == "early_stopping":
        callbacks["early_stopping"] = {"monitor": "val_loss", "patience": 1}
    precision = cell["precision"]
    return Settings(
        callbacks=callbacks,
        warm_up_steps=7 if cell["rate"] == "warm_up" else 0,
        mixed_precision=None if precision == "float32" else precision,
        steps_per_execution=cell["executions"],
        last_batch="drop" if cell["batch"] == "even" else "keep",
    )


class Trained:
    """One process's part of the trainings of a strategy.

    Args:
      spec: The training; each cell has its own settings.
      distribution: `trainer.distribution`.
      batches: Rows of a batch by name.
    """

    def __init__(self, spec: WorkerSpec, batches: dict[str, int]):
        self._spec, self._batches = spec, batches
        self._cluster = ClusterSpec.from_environment()
        choice = strategy.choose(spec.distribution, self._cluster, Settings())
        self._strategy = strategy.build(choice, spec.distribution, self._cluster)
        self.is_chief = self._cluster.is_chief
        sys.path.insert(0, spec.folder)

    def answer(self, cell: Cell, folder: Path) -> Cell | None:
        """What a cell gives; None of a worker that is not the chief.

        Args:
          cell: The cell.
          folder: A folder for its files, the same for all workers.
        """
        _reset()
        gc.freeze()  # TensorFlow keeps graphs, which each collection would go through
        batch_size, how = self._batches[cell["batch"]], settings(cell)
        folder.mkdir(exist_ok=True)
        spec = dataclasses.replace(
            self._spec,
            batch_size=batch_size,
            epochs=EPOCHS,
            settings=how,
            hyperparameters=cell,
            model_dir=str(folder / "model"),
            log_dir=str(folder / "log"),
            checkpoint_dir=str(folder / "checkpoints"),
        )
        try:
            return self._compared(spec, str(folder / "weights"), str(folder / "saved"))
        except UserError as error:
            return {"rejected": str(error)}

    def _compared(self, spec: WorkerSpec, weights: str, saved: str) -> Cell | None:
        facts = self._train(spec, weights)
        resumed = self._resumed(spec, weights) if spec.hyperparameters["stop"] else None
        drops = facts["steps"] % -(-facts["rows"] // spec.batch_size) != 0
        plain, history = self._plain(spec, facts, drops)
        # All workers: moving averages are read from all of them.
        theirs = [np.asarray(w, np.float64) for w in plain.get_weights()]
        split = workload.split(spec, spec.eval_files)
        features = keras3.taken(plain, split.sample(ANSWERED)[0])
        expected = _by_name(plain, plain(features, training=False))
        if not self.is_chief:
            return None
        evaluation = session.evaluate_and_export(spec, facts, weights, saved)
        ours = self._weights(spec, facts, weights)
        return {
            "steps": facts["steps"],
            "drops": drops,
            "history": facts["history"],
            "expected": {k: list(map(float, v)) for k, v in history.items()},
            "evaluation": evaluation,
            "weights": [_apart(a, b) for a, b in zip(ours, theirs, strict=True)],
            "answers": _apart(_served(spec, saved), expected),
            "resumed": resumed,
        }

    def _resumed(self, spec: WorkerSpec, weights: str) -> dict[str, Any]:
        """How a training that was stopped ends, beside the undisturbed one."""
        stop = spec.hyperparameters["stop"]
        again = f"{os.path.dirname(weights)}/again/weights"
        Path(again).parent.mkdir(exist_ok=True)
        spec = dataclasses.replace(spec, checkpoint_dir=f"{spec.checkpoint_dir}-again")
        stopping = dataclasses.replace(
            spec, hyperparameters={**spec.hyperparameters, "stops_after": stop}
        )
        with contextlib.suppress(UserError):
            self._train(stopping, again)
        facts = self._train(spec, again)
        if not self.is_chief:
            return {}
        left = [self._weights(spec, facts, path) for path in (weights, again)]
        return {
            "stop": stop,
            "history": facts["history"],
            "weights": [_apart(a, b) for a, b in zip(*left, strict=True)],
        }

    def _train(self, spec: WorkerSpec, weights: str) -> dict[str, Any]:
        _reset()
        choice = strategy.choose(spec.distribution, self._cluster, spec.settings)
        session.configure(spec)
        operation = Operation(checkpoint_every="3 steps")
        training = Training(spec, operation, self._cluster, choice, self._strategy)
        return training.run(weights)

    def _weights(self, spec: WorkerSpec, facts: Cell, path: str) -> list[np.ndarray]:
        model, features = self._rebuilt(spec, facts, by_hand=False)
        model(features, training=False)
        saved_weights.read(model, path)
        return [np.asarray(w, np.float64) for w in model.get_weights()]

    def _rebuilt(
        self, spec: WorkerSpec, facts: Cell, *, by_hand: bool, drops: bool = False
    ) -> tuple[Any, Any]:
        session.configure(spec)
        keras3.prepare(spec.settings, spec.seed)
        cell = {**spec.hyperparameters, "by_hand": by_hand}
        context = dataclasses.replace(
            workload.context(spec, facts["rows"], self._replicas()),
            hyperparameters=cell,
            drops_last_batch=drops,
        )
        model = importlib.import_module(spec.module).build_model(context)
        context.training_step.follow(model)
        features = workload.split(spec, spec.train_files).sample(ANSWERED)[0]
        return model, keras3.taken(model, features)

    def _replicas(self) -> int:
        return self._strategy.num_replicas_in_sync

    def _plain(
        self, spec: WorkerSpec, facts: Cell, drops: bool
    ) -> tuple[Any, dict[str, list[float]]]:
        """A model that Keras's own `fit` has trained, and its history."""
        cell = spec.hyperparameters
        # Gradients of a sum overflow in float16; each replica's are checked apart.
        overflows = cell["precision"] == "float16" and cell["loss"] in ("sum", "none")
        alone = cell["alone"] and not overflows
        default = tf.distribute.get_strategy()
        with contextlib.nullcontext() if alone else self._strategy.scope():
            here = default if alone else self._strategy
            model, features = self._rebuilt(spec, facts, by_hand=True, drops=drops)
            model(features, training=False)
            if not alone and cell["strategy"] == "central_storage":
                optimizers.let_replicas_set_rate(model)  # or a schedule fails
            # Masks depend on how often tf-keras traces the step.
            same = cell["dropout"] == "stock_dropout" and cell["keras"] == 2
            chosen = cell["strategy"] == "one_device" and cell["step"] == "stock"
            automatic = 2 if chosen else 1
            model.steps_per_execution = (cell["executions"] or automatic) if same else 1
            model.distribute_reduction_method = (
                "first"  # or metrics of workers are summed
            )
            batches = functools.partial(
                workload.split(spec, spec.train_files).shuffled,
                spec.batch_size,
                seed=spec.seed,
                epochs=None,
                drop_last=drops,
            )
            evaluated = workload.split(spec, spec.eval_files)
            size = uneven_batches.evaluation_batch(
                evaluated.rows, spec.batch_size, self._replicas()
            )
            epochs = 1 if keras3.is_model(model) else None
            ordered = functools.partial(evaluated.ordered, size, epochs=epochs)
            batches, ordered = (keras3.batches(model, x) for x in (batches, ordered))
            if not keras3.is_model(model):
                batches, ordered = (
                    functools.partial(distributed.batches, here, x)
                    for x in (batches, ordered)
                )
            callbacks = [] if alone else [_averaging(model)]
            callbacks += _callbacks(model, cell)
            if same:  # or the first step is traced twice, to create variables
                model.evaluate(ordered(), steps=1, verbose=0)
                # As `optimizers.build`: a step of the user's own is traced twice.
                if cell["optimizer"] != "Nadam" and cell["step"] == "stock":
                    model.optimizer.build(model.trainable_variables)
            steps = facts["rows"] // spec.batch_size
            history = model.fit(
                batches(),
                epochs=EPOCHS,
                steps_per_epoch=steps
                if drops
                else -(-facts["rows"] // spec.batch_size),
                validation_data=ordered(),
                validation_steps=None
                if keras3.is_model(model)
                else evaluated.steps(size),
                callbacks=callbacks,
                verbose=0,
            ).history
        for callback in callbacks:
            if hasattr(callback, "kept"):
                model.set_weights(callback.kept)
        return model, history


def _best_of(model: Any) -> type:
    callbacks = keras3.package_of(model).callbacks

    class Best(callbacks.Callback):
        """What `ModelCheckpoint(save_best_only=True)` keeps, in memory."""

        best, kept = np.inf, None

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if logs["val_loss"] < self.best:
                self.best, self.kept = logs["val_loss"], self.model.get_weights()

    return Best


def _averaging(model: Any) -> Any:
    """Has plain Keras evaluate the weights that `get_weights` returns.

    It evaluates each replica's own moving averages, whose mean it saves; Keras 3 saves
    those of the first replica.
    """
    strategy = tf.distribute.get_strategy()

    class Averaging(keras3.package_of(model).callbacks.Callback):
        def on_test_begin(self, logs: Any = None) -> None:
            weights = self.model.get_weights()
            if keras3.is_model(model):
                copies = (
                    strategy.experimental_local_results(w.value)
                    for w in self.model.weights
                )
                weights = [np.mean(list(map(np.asarray, x)), 0) for x in copies]
            self.model.set_weights(weights)

    return Averaging()


def _callbacks(model: Any, cell: Cell) -> list[Any]:
    stock = keras3.package_of(model).callbacks
    found: list[Any] = []
    if cell["rate"] == "plateau":
        found.append(stock.ReduceLROnPlateau(**PLATEAU))
    if cell["keep"] == "early_stopping":
        found.append(
            stock.EarlyStopping("val_loss", patience=1, restore_best_weights=True)
        )
    if cell["keep"] == "best_checkpoint":
        found.append(_best_of(model)())
    return found


def _reset() -> None:
    """A cell begins as in a new process."""
    import keras

    for package in (tf.keras, keras):
        package.backend.clear_session()
        package.mixed_precision.set_global_policy("float32")
    gc.collect()


def _apart(a: Any, b: Any) -> float:
    """The largest difference, in parts of the largest value, which is at least 1."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), (a.keys(), b.keys())
        return max(_apart(a[key], b[key]) for key in a)
    a, b = (np.asarray(x, np.float64) for x in (a, b))
    assert a.shape == b.shape, (a.shape, b.shape)
    scale = max(1.0, float(np.abs(b).max(initial=0)))
    return float(np.abs(a - b).max(initial=0)) / scale


def _by_name(model: Any, output: Any) -> dict[str, np.ndarray]:
    if not isinstance(output, dict):
        output = {"predictions": output}
    return {key: np.asarray(value, np.float64) for key, value in output.items()}


def _served(spec: WorkerSpec, folder: str) -> dict[str, np.ndarray]:
    """What the saved model answers to the first raw rows of the evaluation split."""
    (file,) = Path(spec.schema_file).parents[1].glob("raw/Split-eval/*")
    rows = tf.data.TFRecordDataset(str(file), "GZIP").take(ANSWERED)
    signature = tf.saved_model.load(folder).signatures["serving_default"]
    found = signature(examples=tf.stack(list(rows)))
    return {key: np.asarray(value, np.float64) for key, value in found.items()}


def _read_once() -> None:
    """Each split is read once: all cells have the same rows."""
    read: Callable[..., Split] = workload.split
    kept: dict[tuple[Any, ...], Split] = {}

    def split(spec: WorkerSpec, *which: Any) -> Split:
        if which not in kept:
            kept[which] = read(spec, *which)
        return kept[which]

    workload.split = split


def main(request: str) -> None:
    """Answers the cells of a file, a line of JSON each.

    Args:
      request: Path of a JSON file: `spec`, `batches` and `cells`, each with `stop`, the
        step at which its training is interrupted once, or 0, and `alone`, whether its
        result does not depend on the replicas.
    """
    autograph.convert_user_code_only()
    _read_once()
    asked = json.loads(Path(request).read_text())
    trained = Trained(WorkerSpec.from_json(asked["spec"]), asked["batches"])
    if not trained.is_chief:
        os.dup2(2, 1)  # nobody reads its log from a pipe
    for number, cell in enumerate(asked["cells"]):
        # A worker whose peer has failed would wait for ever.
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        folder = Path(request).parent / f"cell-{number}"
        try:
            found = trained.answer(cell, folder)
        except Exception:
            found = {"failed": traceback.format_exc()}
        if found is not None and trained.is_chief:
            print(json.dumps(found), flush=True)
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps(["end"]), flush=True)
    sys.stdin.read()
    os._exit(0)
