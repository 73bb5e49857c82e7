"""Explains why a model fails on features of varying length, such as missing values.

Such a feature reaches a model as a `tf.SparseTensor`, a ragged one as a
`tf.RaggedTensor`; most layers accept neither, and TensorFlow's error quotes the
tensors, not the features.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.user_code.user_errors import explain, location
from strategos.components.wording import choices, quoted

_SPARSE = (tf.SparseTensor, tf.io.VarLenFeature, tf.io.SparseFeature)
_RAGGED = (tf.RaggedTensor, tf.io.RaggedFeature)
_UNDEFINED = "last dimension of the inputs to a Dense layer should be defined"


@contextlib.contextmanager
def explained(
    where: str,
    folder: str,
    features: Mapping[str, Any],
    inputs: Mapping[str, Any],
    filling: Callable[[list[str]], str],
) -> Iterator[None]:
    """Turns an error about a sparse or ragged tensor into a UserError naming features.

    Args:
      where: Name of the user's function, for an error without a known line.
      folder: Folder of the user's code.
      features: Tensor or `tf.io` spec of each feature.
      inputs: `Input` of each feature that the model takes; empty if unknown.
      filling: Returns advice on making sparse features dense, given their names.

    Raises:
      UserError: The body failed on a sparse or ragged tensor.
    """
    try:
        yield
    except Exception as error:
        text = str(error) if isinstance(error, UserError) else explain(error, folder)
        advice = _advice(text, features, inputs, filling)
        if not advice:
            raise
        root = error.__cause__ or error
        raise UserError(f"{location(root, folder) or where}: {advice}") from root


def _advice(
    text: str,
    features: Mapping[str, Any],
    inputs: Mapping[str, Any],
    filling: Callable[[list[str]], str],
) -> str:
    """The remedy for the features that an error may concern; "" without such."""
    remedies: dict[str, str] = {}
    for word, kinds, remedy in (
        ("SparseTensor", _SPARSE, lambda names: f"{_fill(names)} {filling(names)}"),
        ("RaggedTensor", _RAGGED, _pad),
    ):
        names = [
            name
            for name, value in features.items()
            if isinstance(value, kinds)
            and (name in inputs or not inputs)
            and not _declared(inputs.get(name), kinds[0])
        ]
        if names:
            remedies[word] = remedy(names)
    named = [remedy for word, remedy in remedies.items() if word in text]
    if not named and _UNDEFINED in text:
        named = list(remedies.values())
    return " ".join(named)


def _declared(features: Any, kind: type) -> bool:
    """Whether an `Input` was declared sparse or ragged."""
    attribute = "sparse" if kind is tf.SparseTensor else "ragged"
    spec = getattr(features, "type_spec", None)
    if spec is not None:
        return spec.value_type is kind
    return bool(getattr(features, attribute, False))


def _fill(names: list[str]) -> str:
    return (
        f"the model needs dense values of {_listed(names)}, but a row may have none or "
        "several: a layer that takes no tf.SparseTensor got one."
    )


def _pad(names: list[str]) -> str:
    return (
        f"the model needs dense values of {_listed(names)}, but these rows differ in "
        "length: a layer that takes no tf.RaggedTensor got one. Declare the input "
        "with `ragged=True` and use layers that take it, or pad it in "
        "`preprocessing_fn`: `x.to_tensor(shape=[None, LENGTH])`."
    )


def _listed(names: list[str]) -> str:
    return choices(quoted(sorted(names)))
