"""Keys, types and allowed values of the YAML surface, read from its models.

Errors, the reference in `docs/` and the loader all use this module, so that a key is
described in one place only: where `config` declares it.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from strategos.components.wording import listed

KEY = "[key]"
"""pydantic appends this to the path of an invalid name in a mapping."""


@dataclass(frozen=True)
class Allowed:
    """A description of the allowed values, where the type alone is not enough."""

    text: str


@dataclass(frozen=True)
class PathMark:
    """Marks a value as a path, relative to the file that names it.

    Attributes:
      words: Values with a special meaning, which are not paths.
    """

    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Key:
    """One key of the surface.

    Attributes:
      path: E.g. ("trainer", "epochs").
      field: The field of the model that declares the key.
    """

    path: tuple[str, ...]
    field: FieldInfo

    @property
    def annotation(self) -> Any:
        """The type as declared, with the metadata that pydantic split off."""
        parts = (self.field.annotation, *self.field.metadata)
        return typing.Annotated[parts] if len(parts) > 1 else parts[0]


def fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of `model` by their names in the YAML."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def keys(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[Key]:
    """Yields all keys below `model`, depth first.

    Args:
      model: A section, or the whole surface.
      path: The path of `model` itself. User-chosen keys of a mapping appear as `NAME`.
    """
    for name, field in fields(model).items():
        key = Key((*path, name), field)
        yield key
        yield from _below(key.annotation, key.path)


def _below(annotation: Any, path: tuple[str, ...]) -> Iterator[Key]:
    bare, _ = _strip(annotation)
    if _is_model(bare):
        yield from keys(bare, path)
    elif typing.get_origin(bare) is dict:
        yield from _below(typing.get_args(bare)[1], (*path, "NAME"))


def at(model: type[BaseModel], path: Iterable[str | int]) -> Any:
    """The annotation of the value at `path`; None if the key does not exist.

    Args:
      model: The section that `path` starts at.
      path: Names of keys, and indices of list items; `KEY` at its end for the name
        before it, which the user chose.
    """
    parts = list(path)
    if parts[-1:] == [KEY]:  # not the value, but its name in a mapping
        mapping, _ = _strip(at(model, parts[:-2]))
        return typing.get_args(mapping)[0]
    annotation: Any = model
    for part in parts:
        bare, _ = _strip(annotation)
        if _is_model(bare):
            field = fields(bare).get(str(part))
            annotation = Key((), field).annotation if field else None
        elif typing.get_origin(bare) is dict:
            annotation = typing.get_args(bare)[1]
        elif typing.get_origin(bare) is tuple:
            annotation = typing.get_args(bare)[0]
        else:
            return None
    return annotation


def model_at(model: type[BaseModel], path: Iterable[str | int]) -> Any:
    """The section class at `path`; None for a plain value. See `at`."""
    bare, _ = _strip(at(model, path))
    return bare if _is_model(bare) else None


def is_free(model: type[BaseModel], path: Iterable[str | int]) -> bool:
    """Whether the mapping at `path` accepts any keys and values. See `at`."""
    bare, _ = _strip(at(model, path))
    return typing.get_origin(bare) is dict and typing.get_args(bare)[1] is Any


def is_mapping_of_models(annotation: Any) -> bool:
    """Whether the value is a mapping of user-chosen names to sections."""
    bare, _ = _strip(annotation)
    return typing.get_origin(bare) is dict and _is_model(typing.get_args(bare)[1])


def is_path(annotation: Any, value: str) -> bool:
    """Whether `value`, for a key with this annotation, is a path."""
    marks = [item for item in _strip(annotation)[1] if isinstance(item, PathMark)]
    return any(value not in mark.words for mark in marks)


def is_switch(annotation: Any) -> bool:
    """Whether the value may be `true` or `false` in place of a section."""
    bare, metadata = _strip(annotation)
    return _is_model(bare) and any(isinstance(item, Allowed) for item in metadata)


def describe(annotation: Any) -> str:
    """Describes the allowed values of a type: "a whole number, at least 1"."""
    bare, metadata = _strip(annotation)
    for item in metadata:
        if isinstance(item, Allowed):
            return item.text
    return _NAMES.get(bare) or _describe_bare(bare, _bounds(metadata))


def _describe_bare(bare: Any, bounds: str) -> str:
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    if origin is typing.Literal:
        return listed([*map(str, arguments)], "or")
    if origin is tuple:
        return f"a list of {describe(arguments[0])}"
    if origin is dict:
        named = "sections" if is_mapping_of_models(bare) else "texts"
        named = "settings" if arguments[1] is Any else named
        return f"a mapping of names to {named}"
    if _is_model(bare):
        return f"a mapping with the keys {', '.join(fields(bare))}"
    return {int: "a whole number", float: "a number"}[bare] + bounds


_NAMES = {str: "text", bool: "true or false", Any: "anything"}


def _bounds(metadata: Iterable[Any]) -> str:
    text = ""
    for item in metadata:
        if isinstance(item, annotated_types.Ge):
            text += f", at least {item.ge}"
        elif isinstance(item, annotated_types.Le):
            text += f", at most {item.le}"
    return text


def _strip(annotation: Any) -> tuple[Any, list[Any]]:
    """Splits a type into itself, without `Annotated` and `| None`, and its metadata."""
    metadata: list[Any] = []
    while True:
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Annotated:
            for item in arguments[1:]:
                metadata += item.metadata if isinstance(item, FieldInfo) else [item]
            annotation = arguments[0]
        elif origin in (typing.Union, types.UnionType) and type(None) in arguments:
            annotation = next(a for a in arguments if a is not type(None))
        else:
            return annotation, metadata


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def json_schema(model: type[BaseModel], metrics: Iterable[str]) -> str:
    """The JSON Schema of the YAML, for editors.

    Args:
      model: `Config`.
      metrics: Names of metrics, which editors then offer.
    """
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Strategos pipeline",
        "description": model.__doc__,
    }
    schema = {**head, **_without_titles(model.model_json_schema(by_alias=True)), **head}
    named = [{"enum": list(metrics)}, {"type": "string"}]
    by_class = {"type": "object", "required": ["class"]}
    evaluator = schema["$defs"]["Evaluator"]["properties"]
    evaluator["metrics"]["items"] = {"anyOf": [*named, by_class]}
    evaluator["bounds"]["propertyNames"] = {"anyOf": named}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _without_titles(node: Any) -> Any:
    """`node` without the titles that pydantic derives from the keys."""
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        name: _without_titles(value)
        for name, value in node.items()
        if not (name == "title" and isinstance(value, str))
    }
