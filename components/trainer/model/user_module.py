"""The user's training module: its functions, and calls into them."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from strategos.components.errors import Place, UserError
from strategos.components.trainer.compat import keras3, layer_norm
from strategos.components.trainer.compat.autograph import convert_methods
from strategos.components.trainer.compat.callbacks import join
from strategos.components.trainer.data import file_shards
from strategos.components.trainer.data.split import Split
from strategos.components.trainer.model import varying
from strategos.components.trainer.model.blame import blamed
from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.model.labels import judged_output
from strategos.components.trainer.model.model_checks import ModelChecker
from strategos.components.trainer.model.replicas import keras3_limits, losses
from strategos.components.trainer.spec import Settings, WorkerSpec
from strategos.components.transformed import sparse_columns, unseen_labels
from strategos.components.user_code import modules

_SAMPLE_ROWS = 64


_OF_FIT = {
    "phases": (
        "`run_fn` decides itself which layers train",
        "Remove it, or let `build_model(context)` take the place of `run_fn`.",
    ),
    "evaluate_every": (
        "has no effect on `run_fn`, which evaluates itself",
        "Remove it, and call `context.loop.evaluate(step)` in `run_fn`.",
    ),
    "accumulate_steps": (
        "has no effect on the steps of `run_fn`",
        "Remove it, and add up the gradients in `run_fn`.",
    ),
    "jit_compile": (
        "has no effect on the steps of `run_fn`",
        "Remove it, and trace them by `tf.function(jit_compile=True)`.",
    ),
    "steps_per_execution": (
        "has no effect on the steps of `run_fn`",
        "Remove it, and take several steps in one `tf.function`.",
    ),
    "optimizer.ema": (
        "`fit` sets the averages when training ends, but `run_fn` trains",
        "Remove it. In `build_model`, give the optimizer `use_ema=True`; at the end of "
        "`run_fn`, call its `finalize_variable_values`.",
    ),
}
"""Settings that only `fit` follows: why, and a remedy."""


class UserModule:
    """The user's module: calls its functions and adds file and line to every error.

    Args:
      spec: The model, data and settings of the training.
      strategy: Name of the strategy.

    Attributes:
      file: Path of the module's source.
      run_fn: The user's own training loop, `run_fn(context)`, or None.

    Raises:
      UserError: The module cannot be imported or lacks `build_model`; or its `run_fn`
        takes other arguments than `context`, or a setting is one that it does not
        follow.
    """

    def __init__(self, spec: WorkerSpec, strategy: str = "one_device"):
        self._spec, self._strategy = spec, strategy
        self._module = modules.load(spec.folder, spec.module)
        self.file = str(self._module.__file__)
        self.run_fn = self._own_loop()
        if self.run_fn:
            check_own_loop(self.file, spec.settings)
        self._build_model = modules.function(spec.folder, spec.module, "build_model")
        self._where = f"{self.file}: `build_model`"
        unseen = functools.partial(
            unseen_labels.load, spec.transform_graph, spec.eval_split
        )
        self._checker = ModelChecker(
            *(self._where, spec.folder, spec.target, strategy, unseen),
            own_loop=bool(self.run_fn),
        )

    def build_model(self, context: TrainingContext) -> tf.keras.Model:
        """Calls the user's `build_model`.

        Args:
          context: The training context.

        Returns:
          A compiled model.

        Raises:
          UserError: The function fails, or returns no compiled model, or a Keras 3
            model under a strategy that does not support it.
        """
        # The same in each process, even if random numbers were drawn before.
        tf_keras.utils.set_random_seed(context.seed)
        imports = modules.imports(self._spec.folder, self._spec.module, "keras")
        keras3.prepare(self._spec.settings, context.seed, imports)
        with self._explained(context.feature_spec), self.blamed("`build_model` fails"):
            try:
                model = self._build_model(context)
            except Exception as error:
                if layer := keras3.layer_called(error):
                    raise self._checker.mixed(layer) from error
                if keras3.lacks_package(error):
                    raise self._checker.without_package() from error
                raise
        self._checker.check_kind(model)
        convert_methods(model)
        layer_norm.keep_on_gpu(model)
        return model

    def callbacks(self, context: TrainingContext) -> list[Any]:
        """Calls the user's `callbacks`; [] if the module has no such function.

        Args:
          context: The training context.

        Raises:
          UserError: The function fails, or returns an object that is not a callback.
        """
        function = getattr(self._module, "callbacks", None)
        if function is None:
            return []
        with self.blamed("`callbacks` fails"):
            callbacks_of = list(function(context) or [])
        for callback in callbacks_of:
            self._check_callback(callback)
        return list(map(join, callbacks_of))

    def _check_callback(self, callback: Any) -> None:
        is_ours = isinstance(callback, tf_keras.callbacks.Callback)
        if not is_ours and not keras3.is_callback(callback):
            raise UserError(
                f"`callbacks` returned a {type(callback).__name__}",
                place=Place(self.file),
                expected="a list of `tf.keras.callbacks.Callback`",
            )
        if isinstance(callback, keras3.classes("callbacks", "BackupAndRestore")):
            raise UserError(
                "`callbacks` returned a BackupAndRestore: after a restart it would put "
                "older weights in the place of those of the checkpoint",
                place=Place(self.file),
                remedy="Remove it: checkpoints are saved and training resumes without "
                "it, see `trainer.checkpoint_every`.",
            )

    def check_scope(
        self, model: tf.keras.Model, distribution: tf.distribute.Strategy
    ) -> None:
        """Rejects a model or optimizer that was made outside of `build_model`.

        Args:
          model: The result of `build_model`.
          distribution: The strategy of this process.

        Raises:
          UserError: The model or optimizer was made elsewhere, e.g. when the module was
            imported; or Keras 3 cannot train the model on several replicas.
        """
        keras3_limits.check(
            model,
            self._spec.distribution,
            distribution.num_replicas_in_sync,
            self._where,
            strategy=self._strategy,
            own_loop=bool(self.run_fn),
        )
        self._checker.check_scope(model, distribution)

    def check_inputs(self, model: tf.keras.Model, features: dict[str, Any]) -> None:
        """Rejects a model with an input that does not fit its feature.

        Args:
          model: The result of `build_model`.
          features: A batch of features.

        Raises:
          UserError: An input does not fit.
        """
        self._checker.check_inputs(model, features)

    def outputs(
        self, model: tf.keras.Model, training: Split | file_shards.FileShare
    ) -> Any:
        """Computes the model's outputs on the first rows, without changing its state.

        Creates all variables of its layers.

        Args:
          model: The result of `build_model`.
          training: The training examples.

        Returns:
          Tensors `[rows, …]`, flat or nested, with up to 64 rows.

        Raises:
          UserError: An input does not fit its feature, or the model fails.
        """
        features, _ = training.sample(_SAMPLE_ROWS)
        self.check_inputs(model, features)
        with self._explained(features, keras3.inputs_of(model)):
            return self._checker.outputs(model, features)

    def combine_losses(
        self,
        model: tf.keras.Model,
        outputs: Any,
        training: Split | file_shards.FileShare,
    ) -> bool:
        """Makes losses count as means or sums over the rows of several replicas.

        Args:
          model: The result of `build_model`.
          outputs: The model's outputs on the first rows.
          training: The training examples.

        Returns:
          Whether a loss is a sum: its value depends on the number of rows in a batch.
          False if the user's own loop trains.

        Raises:
          UserError: A loss fails, or is rejected by `losses.combine`.
        """
        if self.run_fn:  # the user's loop combines them
            return False
        features, labels = training.sample(_SAMPLE_ROWS)
        with self.blamed("the loss fails on the first rows"):
            return losses.combine(model, outputs, features, labels, self._where)

    def check(
        self,
        model: tf.keras.Model,
        outputs: Any,
        training: Split | file_shards.FileShare,
        evaluated: Split | None = None,
    ) -> None:
        """Rejects a model that does not fit its data or its loss.

        Args:
          model: The result of `build_model`.
          outputs: The model's outputs on the first rows.
          training: The training examples.
          evaluated: The examples to evaluate on.

        Raises:
          UserError: The model does not fit.
        """
        features, labels = training.sample(_SAMPLE_ROWS)
        known = training.labels()
        in_memory = known is not None
        if in_memory:
            labels = known
        with self._explained(features, keras3.inputs_of(model)):
            self._checker.check_output(
                model,
                features,
                outputs,
                labels,
                complete=in_memory and isinstance(training, Split),
                evaluated=evaluated and evaluated.labels(),
                is_weighted=bool(training.weights),
            )
        fits = not (self.run_fn or keras3.is_overridden(model, "train_step"))
        if training.weights and fits:
            rows = tf.nest.flatten(outputs)[0].shape[0]
            first = tf.nest.map_structure(lambda each: each[:rows], labels)
            losses.check_weighted(model, outputs, first, self._where)

    def check_judged(
        self, model: tf.keras.Model, outputs: Any, task: str, values: int
    ) -> None:
        """Rejects a model that the Evaluator could not judge: `judged_output.check`."""
        judged_output.check(model, outputs, task, self._where, values)

    def blamed(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Turns an exception into a UserError with the user's file and line.

        Args:
          what: The failure, for the message, e.g. "training fails".
        """
        together = self._strategy in ("mirrored", "central_storage")
        return blamed(what, self.file, self._spec.folder, in_one_process=together)

    def _explained(
        self, features: Mapping[str, Any], inputs: Mapping[str, Any] | None = None
    ) -> contextlib.AbstractContextManager[None]:
        spec = self._spec
        return varying.explained(
            self._where,
            spec.folder,
            features,
            inputs or {},
            functools.partial(sparse_columns.advice_on, spec.transform_graph),
        )

    def _own_loop(self) -> Callable[[Any], Any] | None:
        run_fn = getattr(self._module, "run_fn", None)
        if run_fn is None:
            return None
        names = list(inspect.signature(run_fn).parameters)
        if names != ["context"]:
            raise UserError(
                f"`run_fn` takes ({', '.join(names)})",
                place=Place(self.file),
                expected="`run_fn(context)` for a loop over our data, or "
                "`run_fn(fn_args)` as TFX calls it",
            )
        if not callable(getattr(self._module, "build_model", None)):
            raise UserError(
                "has `run_fn(context)`, but no function `build_model`",
                place=Place(self.file),
                remedy="Define `def build_model(context)` beside it: `run_fn` trains "
                "what it returns, `context.model`, and the export builds it anew.",
            )
        return run_fn


def check_own_loop(file: str, settings: Settings) -> None:
    """Rejects settings that a `run_fn` cannot follow.

    Args:
      file: The user's module.
      settings: The settings of the run.

    Raises:
      UserError: A setting is one that only `fit` follows.
    """
    for key, (why, remedy) in _OF_FIT.items():
        name, _, inner = key.partition(".")
        value = getattr(settings, name)
        if value.get(inner) if inner else value:
            raise UserError(f"{file}: {why}", key=f"trainer.{key}", remedy=remedy)
