"""TensorFlow Serving's REST interface: requests and answers as JSON.

    GET  /v1/models/NAME[/versions/N|/labels/LABEL]            the state of versions
    GET  /v1/models/NAME[/versions/N|/labels/LABEL]/metadata   signatures
    POST /v1/models/NAME[/versions/N|/labels/LABEL]:predict    predictions

https://www.tensorflow.org/tfx/serving/api_rest
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import re
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

import numpy as np

from strategos.components.predict.client import OUTPUTS
from strategos.components.predict.serving import answers
from strategos.components.predict.serving.answers import RequestError
from strategos.components.predict.serving.versions import Loaded, State, Versions
from strategos.components.wording import listed, quoted

_PATH = re.compile(
    r"/v1/models/(?P<name>[^/:]+)"
    r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
    r"(?P<verb>/metadata|:\w+)?"
)
_STALLED_SECONDS = 60.0  # a client that sends nothing
_KINDS = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}
"""Kinds of numpy's types that a value of JSON may have, by the kind of the input."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer to a request.

    Attributes:
      body: JSON-able values.
      version: The version that has predicted; None if the request is another one.
      rows: Number of predicted rows.
      outputs: Names of the outputs.
    """

    body: Mapping[str, Any]
    version: int | None = None
    rows: int = 0
    outputs: Sequence[str] = ()


class Handler(BaseHTTPRequestHandler):
    """One connection to a server with the attribute `models`, its `Versions`."""

    protocol_version = "HTTP/1.1"
    timeout = _STALLED_SECONDS
    wbufsize = -1  # head and body in one packet: no wait for an acknowledgement

    def do_GET(self) -> None:
        """Answers a request for states or metadata."""
        self._answer("GET")

    def do_POST(self) -> None:
        """Answers a request for predictions."""
        self._answer("POST")

    def log_message(self, *_: Any) -> None:
        """Logs nothing; see `answered`."""

    def check(self) -> None:
        """Raises a RequestError if the client may not ask; for servers to override."""

    def answered(
        self, status: HTTPStatus, seconds: float, result: Answer | RequestError
    ) -> None:
        """Is called after each answer; for servers to override.

        Args:
          status: Status of the answer.
          seconds: Time from the request to the answer.
          result: The answer, or the problem.
        """

    @property
    def models(self) -> Versions:
        """The versions of the served model."""
        models: Versions = self.server.models  # type: ignore[attr-defined]
        return models

    def _answer(self, method: str) -> None:
        started = time.monotonic()
        size = self.headers.get("Content-Length", "0")
        content = self.rfile.read(int(size) if size.isdecimal() else 0)
        result: Answer | RequestError
        try:
            self.check()
            result = answer(self.models, method, self.path, content)
            status, body = HTTPStatus.OK, result.body
        except RequestError as error:
            result, status, body = error, error.status, {"error": str(error)}
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if isinstance(result, Answer) and result.outputs:
            self.send_header(OUTPUTS, json.dumps(result.outputs))
        self.end_headers()
        self.wfile.write(text)
        self.answered(status, time.monotonic() - started, result)


def answer(models: Versions, method: str, path: str, content: bytes) -> Answer:
    """Answers a request.

    Args:
      models: The versions of the model.
      method: `GET` or `POST`.
      path: The path of the URL.
      content: The body.

    Raises:
      RequestError: The request is wrong, or the model fails.
    """
    match = _PATH.fullmatch(path.partition("?")[0])
    if match is None:
        raise _malformed(method, path)
    verb, version = match["verb"] or "", match["version"]
    wanted = answers.Wanted(
        unquote(match["name"]),
        None if version is None else int(version),
        match["label"] and unquote(match["label"]),
    )
    if (method, verb) == ("GET", ""):
        return Answer(_states(answers.states(models, wanted)))
    if (method, verb) == ("GET", "/metadata"):
        return Answer(_metadata(models.name, answers.version(models, wanted)))
    if method == "POST" and verb in (":classify", ":regress"):
        raise RequestError(
            HTTPStatus.BAD_REQUEST,
            f"Expected a signature with the method_name tensorflow/serving/{verb[1:]}; "
            "models of Strategos have only those of tensorflow/serving/predict",
        )
    if (method, verb) == ("POST", ":predict"):
        return _predictions(answers.version(models, wanted), _parsed(content))
    raise _malformed(method, path)


def _malformed(method: str, path: str) -> RequestError:
    reason = f"Malformed request: {method} {path}"
    return RequestError(HTTPStatus.BAD_REQUEST, reason)


def _states(states: list[State]) -> dict[str, Any]:
    return {
        "model_version_status": [
            {
                "version": str(each.number),
                "state": "END" if each.problem else "AVAILABLE",
                "status": {
                    "error_code": "UNKNOWN" if each.problem else "OK",
                    "error_message": each.problem,
                },
            }
            for each in states
        ]
    }


def _metadata(name: str, loaded: Loaded) -> dict[str, Any]:
    signatures = {
        key: {
            "inputs": {x: _tensor_info(info) for x, info in each.inputs.items()},
            "outputs": {x: _tensor_info(info) for x, info in each.outputs.items()},
            "method_name": each.method_name,
        }
        for key, each in sorted(loaded.signatures.items())
    }
    spec = {"name": name, "signature_name": "", "version": str(loaded.number)}
    return {
        "model_spec": spec,
        "metadata": {"signature_def": {"signature_def": signatures}},
    }


def _tensor_info(info: Any) -> dict[str, Any]:
    from tensorflow.core.framework import types_pb2

    shape = info.tensor_shape
    dims = [{"size": str(dim.size), "name": dim.name} for dim in shape.dim]
    return {
        "dtype": types_pb2.DataType.Name(info.dtype),
        "tensor_shape": {"dim": dims, "unknown_rank": shape.unknown_rank},
        "name": info.name,
    }


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        request = json.loads(content)
    except ValueError as error:
        reason = f"JSON Parse error: {error}"
        raise RequestError(HTTPStatus.BAD_REQUEST, reason) from error
    if not isinstance(request, dict):
        reason = "Request body must be a JSON object"
        raise RequestError(HTTPStatus.BAD_REQUEST, reason)
    if ("instances" in request) == ("inputs" in request):
        reason = (
            "Request body must have either `instances` (rows) or `inputs` (columns)"
        )
        raise RequestError(HTTPStatus.BAD_REQUEST, reason)
    return request


def _predictions(loaded: Loaded, request: Mapping[str, Any]) -> Answer:
    signature = request.get("signature_name") or answers.DEFAULT
    specs = answers.inputs(loaded, signature)
    in_rows = "instances" in request
    columns = (
        _of_rows(request["instances"], specs)
        if in_rows
        else _of_columns(request["inputs"], specs)
    )
    tensors = {k: _tensor(k, columns[k], specs[k]) for k in specs}
    outputs = answers.predict(loaded, signature, tensors)
    names = sorted(outputs)
    if in_rows:
        rows = len(request["instances"])
        body: dict[str, Any] = {"predictions": _in_rows(outputs, rows)}
        return Answer(body, loaded.number, rows, names)
    rows = max((len(each) for each in tensors.values() if each.ndim), default=0)
    values = {name: _plain(name, outputs[name]) for name in names}
    body = {"outputs": values if len(values) > 1 else values[names[0]]}
    return Answer(body, loaded.number, rows, names)


def _of_rows(rows: Any, specs: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of each input, from `instances`."""
    if not isinstance(rows, list) or not rows:
        reason = "`instances` must be a list with at least one row"
        raise RequestError(HTTPStatus.BAD_REQUEST, reason)
    for number, row in enumerate(rows):
        if _has_names(row):
            _check_names(f"Row {number} of `instances`", row, specs)
        elif len(specs) > 1:
            reason = f"Row {number} of `instances` must be an object with the keys "
            reason += listed(quoted(sorted(specs)))
            raise RequestError(HTTPStatus.BAD_REQUEST, reason)
    return {
        name: [row[name] if _has_names(row) else row for row in rows] for name in specs
    }


def _of_columns(columns: Any, specs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values of each input, from `inputs`."""
    if not _has_names(columns):
        if len(specs) == 1:
            return dict.fromkeys(specs, columns)
        reason = "`inputs` must be an object with the keys "
        reason += listed(quoted(sorted(specs)))
        raise RequestError(HTTPStatus.BAD_REQUEST, reason)
    _check_names("`inputs`", columns, specs)
    checked: Mapping[str, Any] = columns
    return checked


def _has_names(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() != {"b64"}


def _check_names(
    where: str, values: Mapping[str, Any], specs: Mapping[str, Any]
) -> None:
    if values.keys() == specs.keys():
        return
    missing, unknown = sorted(specs.keys() - values), sorted(values.keys() - specs)
    problems = [f"no value for {listed(quoted(missing))}"] if missing else []
    problems += [f"unknown {listed(quoted(unknown))}"] if unknown else []
    reason = f"{where}: {', '.join(problems)}; the signature takes "
    reason += listed(quoted(sorted(specs)))
    raise RequestError(HTTPStatus.BAD_REQUEST, reason)


def _tensor(name: str, values: Any, spec: Any) -> np.ndarray:
    """The array of an input.

    Raises:
      RequestError: The values have another type or shape.
    """
    dtype = spec.dtype.as_numpy_dtype
    try:
        array = np.array(_encoded(values) if dtype is object else values, dtype)
        array = array if dtype is object else _exact(np.array(values), array)
    except (TypeError, ValueError, OverflowError, binascii.Error) as error:
        reason = f"`{name}` must be {spec.dtype.name}: {error}"
        raise RequestError(HTTPStatus.BAD_REQUEST, reason) from error
    if dtype is object and any(isinstance(each, list) for each in array.flat):
        reason = f"`{name}`: lists of different lengths"
        raise RequestError(HTTPStatus.BAD_REQUEST, reason)
    answers.check(name, spec, spec.dtype.name, array.shape)
    return array


def _exact(values: np.ndarray, converted: np.ndarray) -> np.ndarray:
    """The converted values, unless the conversion has changed more than rounding."""
    wanted = converted.dtype.kind
    if values.size == 0:
        return converted
    if values.dtype.kind not in _KINDS.get(wanted, ""):
        raise TypeError(f"received {values.dtype.name}")
    if wanted in "iu" and not np.array_equal(values, converted):
        raise ValueError("a number is out of range")
    return converted


def _encoded(value: Any) -> Any:
    """Replaces text by UTF-8 and `{"b64": …}` by its bytes, also in lists."""
    if isinstance(value, list):
        return [_encoded(each) for each in value]
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    raise TypeError(f"{json.dumps(value)[:50]}, which is no text")


def _in_rows(outputs: Mapping[str, np.ndarray], rows: int) -> list[Any]:
    for name, value in outputs.items():
        if value.shape[:1] != (rows,):
            raise RequestError(
                HTTPStatus.BAD_REQUEST,
                f"The output `{name}` has the shape {value.shape} for {rows} rows; "
                "send columns as `inputs` instead of `instances`",
            )
    names = sorted(outputs)
    columns = [_plain(name, outputs[name]) for name in names]
    if len(names) == 1:
        return list(columns[0])
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain(name: str, value: np.ndarray) -> Any:
    """An output as JSON-able values; bytes in base64 if its name ends with `_bytes`."""
    plain = value.tolist()
    return _decoded(plain, name.endswith("_bytes")) if value.dtype == object else plain


def _decoded(value: Any, as_bytes: bool) -> Any:
    if isinstance(value, list):
        return [_decoded(each, as_bytes) for each in value]
    if as_bytes:
        return {"b64": base64.b64encode(value).decode()}
    return value.decode(errors="replace")
