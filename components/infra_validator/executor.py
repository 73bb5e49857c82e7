"""Loads and calls the model in a fresh process; blesses it or stops the run."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import io_utils, path_utils

from strategos.components import worker_process
from strategos.components.errors import GateStoppedError
from strategos.components.files import listing
from strategos.components.worker_process import WorkerError

_PROBE = "strategos.components.infra_validator.probe"


class Executor(base_executor.BaseExecutor):
    """Executor of the InfraValidator."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Probes the model.

        Raises:
          GateStoppedError: The model does not load, or fails on the examples.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        model = artifact_utils.get_single_instance(input_dict["model"])
        blessing = artifact_utils.get_single_instance(output_dict["blessing"])
        request = {
            "model": path_utils.serving_model_path(model.uri),
            "files": _example_files(input_dict["examples"]),
            "requests": exec_properties["requests"],
        }
        try:
            facts = worker_process.run(
                _PROBE, request, name="infra validator", env=worker_process.TENSORFLOW
            )
        except GateStoppedError:
            _mark(blessing, blessed=False)
            raise
        except WorkerError as error:  # the process crashed
            _mark(blessing, blessed=False)
            raise GateStoppedError(
                f"The model {request['model']} cannot be served: {error}. The last "
                "good model keeps serving."
            ) from error
        blessing.set_int_custom_property("requests", facts["answers"])
        _mark(blessing, blessed=True)


def _example_files(examples: list[types.Artifact]) -> list[str]:
    folders = artifact_utils.get_split_uris(examples, "eval")
    return [file for folder in folders for file in listing.listed(folder)]


def _mark(blessing: types.Artifact, *, blessed: bool) -> None:
    """Writes the blessing of TFX's InfraValidator, as its Pusher expects it."""
    name = "INFRA_BLESSED" if blessed else "INFRA_NOT_BLESSED"
    io_utils.write_string_file(f"{blessing.uri}/{name}", "")
    blessing.set_int_custom_property("blessed", int(blessed))
