"""Runs TFX's Transform with the user's `preprocessing_fn`, imported where it lies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tfx.components.transform import executor, labels
from tfx.utils import json_utils

from strategos.components.transform import preprocessing


class Executor(executor.Executor):
    """TFX's executor, but for where the user's function comes from."""

    def _GetPreprocessingFn(
        self, inputs: Mapping[str, Any], unused_outputs: Mapping[str, Any]
    ) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
        config = json_utils.loads(inputs[labels.CUSTOM_CONFIG])
        module = json.loads(config["user_module"])
        return preprocessing.load(module["folder"], module["module"], config["label"])

    def _GetStatsOptionsUpdaterFn(self, inputs: Mapping[str, Any]) -> None:
        return None
