"""Measures the spans of a run that are new, and the usual ones; compares them."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from tfx import types
from tfx.types import artifact_utils
from tfx.utils import io_utils

from strategos.components.data_files.sources import Reading
from strategos.components.data_files.span_checks import FILE
from strategos.components.shards.executor import EngineExecutor
from strategos.components.span_validator import usual_spans
from strategos.components.span_validator.measure import Reader
from strategos.components.user_code.workload_paths import WorkloadPaths


class Executor(EngineExecutor):
    """Writes `checks.json`; never stops the run."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Measures and compares; see `component.SpanValidator`.

        Raises:
          UserError: The schema, or data to compare with, cannot be read.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        artifact = artifact_utils.get_single_instance(output_dict["anomalies"])
        here = WorkloadPaths.from_environment()
        compared = json.loads(exec_properties["compared_spans"])
        schema_file = exec_properties["schema_file"]
        if exec_properties["schema_fingerprint"] and not schema_file:
            schema_file = here.schema
        reader = Reader(
            self._engine,
            exec_properties["pattern"] or here.examples,
            schema_file,
            tuple(json.loads(exec_properties["null_values"])),
            artifact.uri,
            Reading.from_json(exec_properties.get("reading", "")),
        )
        gates = json.loads(exec_properties["gates"])
        others = json.loads(exec_properties["others"]) or here.others
        checks = list(usual_spans.judged(reader, compared, gates, others))
        # Skew may as well be the fault of the serving data.
        failed = [check for check in checks if not check.ok]
        at_fault = {check.span for check in failed if check.gate != "skew"}
        report = {
            "checks": [dataclasses.asdict(check) for check in checks],
            "spans": {
                str(number): fingerprint
                for number, _, fingerprint in compared["judged"]
                if number in at_fault
            },
        }
        artifact.split_names = artifact_utils.encode_split_names([])
        path = os.path.join(artifact.uri, FILE)
        io_utils.write_string_file(path, json.dumps(report, indent=1))
