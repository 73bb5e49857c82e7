"""Stops the run if a new span differs too much from the usual ones."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import io_utils

from strategos.components.data_files import span_checks
from strategos.components.errors import GateStoppedError
from strategos.components.wording import counted, first

_SHOWN = 20
_REMEDY = (
    "Correct the data of the span: `strategos retrain` leaves it out until its files "
    "change (except for skew). If the data are right, run once with a wider bound "
    "(`--set`)."
)


class Executor(base_executor.BaseExecutor):
    """Reads the checks, which are already published."""

    def Do(
        self,
        input_dict: Mapping[str, list[types.Artifact]],
        output_dict: Mapping[str, list[types.Artifact]],
        exec_properties: Mapping[str, Any],
    ) -> None:
        """Stops the run; see `component.SpanGate` for inputs.

        Raises:
          GateStoppedError: A check failed; the error names the spans at fault.
        """
        uri = artifact_utils.get_single_uri(input_dict["anomalies"])
        path = os.path.join(uri, span_checks.FILE)
        report = json.loads(io_utils.read_string_file(path))
        failed = [check for check in report["checks"] if not check["ok"]]
        if failed:
            raise GateStoppedError(_message(failed), spans=report["spans"])


def _message(failed: list[Mapping[str, Any]]) -> str:
    """A heading, the first failed checks, and the remedy."""
    numbers = sorted({check["span"] for check in failed})
    spans = f"span{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
    heading = f"{spans} failed {counted(len(failed), 'check')} of `gates`:"
    lines = [
        f"{each['gate']}, span {each['span']}: {span_checks.describe(each)}"
        for each in failed
    ]
    return "\n  ".join([heading, *first(lines, _SHOWN), _REMEDY])
