"""Transform: TFX's own component around the user's `preprocessing_fn`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.components.transform import component
from tfx.dsl.components.base import executor_spec

from strategos.components.transform import executor


class Transform(component.Transform):
    """Computes features from raw examples by the user's `preprocessing_fn`.

    Usage:

        transform = Transform(
            examples=example_gen.outputs["examples"],
            schema=schema_gen.outputs["schema"],
            user_module='{"folder": …, "module": "preprocessing", "fingerprint": …}',
            label="late",
        )

    The training split is analyzed, all splits are transformed. Unlike TFX's Transform,
    this component imports the user's module from its folder instead of building a
    wheel, and computes no statistics and no analyzer cache.

    Outputs:
      transform_graph: TFT's graph, for training and serving alike.
      transformed_examples: All splits, as GZIP TFRecords of `tf.Example`.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)

    def __init__(
        self,
        *,
        examples: types.BaseChannel,
        schema: types.BaseChannel,
        user_module: str,
        label: str,
        weight: str = "",
        custom_config: Mapping[str, Any] | None = None,
        missing: Mapping[str, str | int | float] | None = None,
    ):
        """Builds the component.

        Args:
          examples: Raw examples with the splits `train` and `eval`, and perhaps
            `validation`.
          schema: Schema of the raw examples.
          user_module: JSON: `folder`, `module` and `fingerprint` of the user's code;
            without `folder` if the environment has it (see `workload_paths`).
          label: Name of the label, a required output of `preprocessing_fn`; "" for
            none.
          weight: Name of the feature that weights the rows, a required output, too; ""
            (default) for none.
          custom_config: Second argument of a `preprocessing_fn(inputs, custom_config)`,
            as JSON-able values; by default empty.
          missing: By raw column, the value in place of a missing one; default: none.
        """
        super().__init__(
            examples=examples,
            schema=schema,
            preprocessing_fn=f"{json.loads(user_module)['module']}.preprocessing_fn",
            disable_analyzer_cache=True,
            disable_statistics=True,
            force_tf_compat_v1=False,
            custom_config={
                "user_module": user_module,
                "label": label,
                **({"weight": weight} if weight else {}),
                "custom_config": dict(custom_config or {}),
                "missing": dict(missing or {}),
            },
        )
