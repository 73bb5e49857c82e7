"""Answers of a model server, before an interface makes JSON or a message of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from strategos.components import exported
from strategos.components.errors import UserError
from strategos.components.predict.model import ModelFailsError
from strategos.components.predict.serving.versions import (
    Loaded,
    State,
    UnknownVersionError,
    Versions,
)
from strategos.components.wording import listed, quoted

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

DEFAULT = exported.SERVE
"""The signature of a request that names none."""


class RequestError(Exception):
    """A request without an answer.

    Args:
      status: Status of the answer by HTTP.
      reason: The error, for the answer.
    """

    def __init__(self, status: HTTPStatus, reason: str):
        super().__init__(reason)
        self.status = status


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The model and version in a request.

    Attributes:
      model: Name of the model.
      number: Number of the version; None if it is not named.
      label: Label of the version; None if it is not named.
    """

    model: str
    number: int | None = None
    label: str | None = None


def version(models: Versions, wanted: Wanted) -> Loaded:
    """The version that a request names, loaded.

    Args:
      models: The versions of the served model.
      wanted: Model and version in the request.

    Raises:
      RequestError: No such model or version exists, or it does not load.
    """
    _check_name(models, wanted.model)
    try:
        return models.get(wanted.number, wanted.label)
    except UnknownVersionError as error:
        raise RequestError(HTTPStatus.NOT_FOUND, f"Not found: {error}") from error
    except UserError as error:
        raise RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from error


def states(models: Versions, wanted: Wanted) -> list[State]:
    """The states of the versions that a request names; see `version`."""
    _check_name(models, wanted.model)
    try:
        return models.states(wanted.number, wanted.label)
    except UnknownVersionError as error:
        raise RequestError(HTTPStatus.NOT_FOUND, f"Not found: {error}") from error


def inputs(loaded: Loaded, signature: str) -> dict[str, tf.TensorSpec]:
    """The inputs of a signature by name.

    Raises:
      RequestError: The signature is missing.
    """
    specs = loaded.model.inputs(signature)
    if specs is None:
        known = [name for name in sorted(loaded.signatures) if name[:2] != "__"]
        raise RequestError(
            HTTPStatus.BAD_REQUEST,
            f'Serving signature name: "{signature}" not found in signature def; '
            f"expected {listed(quoted(known), 'or')}",
        )
    return specs


def check(name: str, spec: tf.TensorSpec, dtype: str, shape: Sequence[int]) -> None:
    """Rejects values that an input does not take.

    Args:
      name: Name of the input.
      spec: The input's type and shape.
      dtype: Type of the values, in TensorFlow's words, or a description of them.
      shape: Shape of the values.

    Raises:
      RequestError: Type or shape is another one.
    """
    if dtype == spec.dtype.name and spec.shape.is_compatible_with(shape):
        return
    wanted = ", ".join("?" if size is None else str(size) for size in spec.shape)
    received = ", ".join(map(str, shape))
    raise RequestError(
        HTTPStatus.BAD_REQUEST,
        f"`{name}` must be {spec.dtype.name} of the shape [{wanted}], where ? is any "
        f"size; received {dtype} of the shape [{received}]",
    )


def predict(
    loaded: Loaded, signature: str, tensors: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The outputs of a signature by name.

    Raises:
      RequestError: The model fails on these rows.
    """
    try:
        return loaded.model.call(signature, tensors)
    except (ModelFailsError, TypeError, ValueError) as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from error


def _check_name(models: Versions, name: str) -> None:
    if name != models.name:
        raise RequestError(
            HTTPStatus.NOT_FOUND,
            f"Servable not found for request: {name}; this server has {models.name}",
        )
