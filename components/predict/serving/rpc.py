"""TensorFlow Serving's gRPC interface, by the stubs of tensorflow-serving-api.

PredictionService: `Predict`, `GetModelMetadata`; ModelService: `GetModelStatus`. Calls
of other methods end as UNIMPLEMENTED.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent import futures
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from strategos.components.predict.serving import answers
from strategos.components.predict.serving.answers import RequestError
from strategos.components.predict.serving.versions import Versions
from strategos.components.slow_imports import tf
from strategos.components.wording import counted, listed, quoted

if TYPE_CHECKING:
    import numpy as np

    from strategos.components.predict.serving.http_server import Log
_Answer = TypeVar("_Answer")

_CODES = {
    HTTPStatus.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
}
_UNLIMITED = -1
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # else two servers may share a port
    ("grpc.max_receive_message_length", _UNLIMITED),
    ("grpc.max_send_message_length", _UNLIMITED),
)
_METADATA = "signature_def"  # the only field of metadata


class PortError(Exception):
    """The port cannot be listened on."""


def listen(address: str, port: int, threads: int) -> tuple[grpc.Server, int]:
    """A server that listens, and answers after `start`.

    Args:
      address: Name or IP address of this machine, IPv6 in brackets.
      port: The port, 0 for any free one.
      threads: The most requests that are answered at a time.

    Returns:
      The server and its port.

    Raises:
      PortError: The port is taken, or the address is not one of this machine.
    """
    server = grpc.server(futures.ThreadPoolExecutor(threads), options=_OPTIONS)
    try:
        bound_port = server.add_insecure_port(f"{address}:{port}")
    except RuntimeError as error:
        raise PortError(str(error)) from error
    if not bound_port:
        raise PortError(f"cannot listen on {address}:{port}")
    return server, bound_port


def start(server: grpc.Server, models: Versions, log: Log) -> None:
    """Lets a server of `listen` answer.

    Args:
      server: The server.
      models: The versions of the served model.
      log: Is called for each request.
    """
    from tensorflow_serving.apis import (
        model_service_pb2_grpc,
        prediction_service_pb2_grpc,
    )

    requests = _Requests(models, log)

    class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
        """Predictions and signatures."""

        def Predict(self, request: Any, context: grpc.ServicerContext) -> Any:
            """Calls a signature with tensors."""
            return requests.answer("Predict", requests.predict, request, context)

        def GetModelMetadata(self, request: Any, context: grpc.ServicerContext) -> Any:
            """Returns the signatures."""
            return requests.answer(
                "GetModelMetadata", requests.metadata, request, context
            )

    class Model(model_service_pb2_grpc.ModelServiceServicer):
        """States of versions."""

        def GetModelStatus(self, request: Any, context: grpc.ServicerContext) -> Any:
            """Returns the state of versions."""
            return requests.answer("GetModelStatus", requests.states, request, context)

    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        Prediction(), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Model(), server)
    server.start()


class _Requests:
    """Answers messages of requests by messages and a note for the log."""

    def __init__(self, models: Versions, log: Log):
        self._models, self._log = models, log

    def answer(
        self,
        method: str,
        work: Callable[[Any], tuple[_Answer, str]],
        request: Any,
        context: grpc.ServicerContext,
    ) -> _Answer:
        """Answers a request, or aborts it with its status."""
        started = time.monotonic()
        try:
            response, note = work(request)
        except RequestError as error:
            self._log(method, str(error), time.monotonic() - started)
            code = _CODES.get(error.status, grpc.StatusCode.INTERNAL)
            context.abort(code, str(error))
            raise  # not reached: `abort` raises
        self._log(method, note, time.monotonic() - started)
        return response

    def predict(self, request: Any) -> tuple[Any, str]:
        """A PredictResponse for a PredictRequest."""
        from tensorflow_serving.apis import predict_pb2

        loaded = answers.version(self._models, _wanted(request.model_spec))
        signature = request.model_spec.signature_name or answers.DEFAULT
        specs = answers.inputs(loaded, signature)
        if request.inputs.keys() != specs.keys():
            received, known = quoted(sorted(request.inputs)), quoted(sorted(specs))
            reason = f"received the inputs {listed(received) or 'none'}; the signature "
            reason += f"takes {listed(known)}"
            raise RequestError(HTTPStatus.BAD_REQUEST, reason)
        tensors = {
            name: _array(name, request.inputs[name], spec)
            for name, spec in specs.items()
        }
        outputs = answers.predict(loaded, signature, tensors)
        response = predict_pb2.PredictResponse()
        self._describe(response.model_spec, loaded.number, signature)
        for name in _filtered(outputs, request.output_filter):
            response.outputs[name].CopyFrom(tf.make_tensor_proto(outputs[name]))
        rows = max((len(each) for each in tensors.values() if each.ndim), default=0)
        return response, f"version {loaded.number}, {counted(rows, 'row')}"

    def metadata(self, request: Any) -> tuple[Any, str]:
        """A GetModelMetadataResponse for a GetModelMetadataRequest."""
        from tensorflow_serving.apis import get_model_metadata_pb2

        unknown = sorted({*request.metadata_field} - {_METADATA})
        if unknown or not request.metadata_field:
            reason = f"Metadata field {', '.join(unknown) or 'missing'}: expected "
            raise RequestError(HTTPStatus.BAD_REQUEST, reason + _METADATA)
        loaded = answers.version(self._models, _wanted(request.model_spec))
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        self._describe(response.model_spec, loaded.number)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, each in loaded.signatures.items():
            signatures.signature_def[name].CopyFrom(each)
        response.metadata[_METADATA].Pack(signatures)
        return response, f"version {loaded.number}"

    def states(self, request: Any) -> tuple[Any, str]:
        """A GetModelStatusResponse for a GetModelStatusRequest."""
        from tensorflow_serving.apis import get_model_status_pb2

        response = get_model_status_pb2.GetModelStatusResponse()
        kind = get_model_status_pb2.ModelVersionStatus
        states = answers.states(self._models, _wanted(request.model_spec))
        for each in states:
            status = response.model_version_status.add(version=each.number)
            status.state = kind.END if each.problem else kind.AVAILABLE
            if each.problem:
                status.status.error_code = grpc.StatusCode.UNKNOWN.value[0]
                status.status.error_message = each.problem
        return response, ""

    def _describe(self, spec: Any, number: int, signature: str = "") -> None:
        spec.name, spec.signature_name = self._models.name, signature
        spec.version.value = number


def _wanted(spec: Any) -> answers.Wanted:
    """The model and version that a ModelSpec names."""
    chosen = spec.WhichOneof("version_choice")
    return answers.Wanted(
        spec.name,
        spec.version.value if chosen == "version" else None,
        spec.version_label if chosen == "version_label" else None,
    )


def _array(name: str, tensor: Any, spec: Any) -> np.ndarray:
    """The array of a TensorProto.

    Raises:
      RequestError: It has another type or shape than the input.
    """
    try:
        array: np.ndarray = tf.make_ndarray(tensor)
    except (TypeError, ValueError) as error:
        reason = f"`{name}`: {error}"
        raise RequestError(HTTPStatus.BAD_REQUEST, reason) from error
    answers.check(name, spec, tf.as_dtype(tensor.dtype).name, array.shape)
    return array


def _filtered(outputs: dict[str, np.ndarray], names: Any) -> list[str]:
    unknown = sorted({*names} - outputs.keys())
    if unknown:
        reason = f"output tensor alias not found in signature: {', '.join(unknown)}"
        raise RequestError(HTTPStatus.BAD_REQUEST, reason)
    return sorted(names or outputs)
