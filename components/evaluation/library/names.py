"""Names of metrics by their class: `CosineSimilarity`, `AUC(curve="PR")`.

A name holds all that makes the metric, so that workers, records and reports need no
settings beside it. Standard library only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_NAME = re.compile(r"([A-Z][A-Za-z0-9]*)(?:\((.+)\))?", re.DOTALL)
_ARGUMENT = re.compile(r"([a-z_][a-z0-9_]*)=")
_BETWEEN = ", "


class Named(NamedTuple):
    """A class and its arguments.

    Attributes:
      class_name: Name of a class in `tfma.metrics` or `tf.keras.metrics`.
      config: Arguments of the class, as JSON has them.
    """

    class_name: str
    config: Mapping[str, Any]


def spelled(class_name: str, config: Mapping[str, Any]) -> str:
    """The name of a metric: `RecallAtPrecision(precision=0.8)`.

    Args:
      class_name: Name of the class.
      config: Arguments of the class, as JSON has them; their order does not matter.
    """
    arguments = [f"{name}={json.dumps(config[name])}" for name in sorted(config)]
    return f"{class_name}({_BETWEEN.join(arguments)})" if arguments else class_name


def parsed(name: str) -> Named | None:
    """The class and the arguments of a name; None if it is no name by a class.

    Args:
      name: As `spelled` returns it.
    """
    match = _NAME.fullmatch(name)
    if not match:
        return None
    config, rest = {}, match[2] or ""
    while rest:
        argument = _ARGUMENT.match(rest)
        if not argument:
            return None
        try:
            value, end = json.JSONDecoder().raw_decode(rest[argument.end() :])
        except ValueError:
            return None
        config[argument[1]] = value
        rest = rest[argument.end() + end :].removeprefix(_BETWEEN)
    named = Named(match[1], config)
    return named if spelled(*named) == name else None
