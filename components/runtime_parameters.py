"""One table of the parameters that a compiled pipeline receives at run time.

A new runtime parameter needs a line in `TABLE`, its setting in `pipeline/config` and
the code that uses it. The graph, the key of the compiled pipeline, the Kubeflow file,
the Trainer's specification and its worker's arguments are derived from the table.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from strategos.components import node_ids

NOTHING = "none"
"""The value of a text parameter without a value, such as no baseline.

Not "", because TFX treats an empty default as no default.
"""


Type: TypeAlias = type
"""A class; `type` is a field of a parameter."""


@dataclass(frozen=True)
class RuntimeParameter:
    """One runtime parameter.

    Attributes:
      name: Name in the compiled pipeline.
      type: `int`, `str`, or `dict`, which is passed as JSON text.
      nodes: Ids of the nodes that receive the parameter.
      setting: Key path in the YAML, such as `trainer.epochs`; "" if planning computes
        the value.
      argument: Name of the parameter in the nodes' components; by default `name`.
      resumable: Whether interrupted training may resume with another value.
    """

    name: str
    type: type
    nodes: tuple[str, ...]
    setting: str = ""
    argument: str = ""
    resumable: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "argument", self.argument or self.name)

    @property
    def passed_type(self) -> Type:
        """The type in TFX's intermediate representation: `int` or `str`."""
        return str if self.type is dict else self.type

    def encode(self, value: Any) -> int | str:
        """Encodes a value of `type` as `passed_type`; equal dicts give equal text."""
        return json.dumps(value, sort_keys=True) if self.type is dict else value

    def decode(self, value: Any) -> Any:
        """The inverse of `encode`."""
        return json.loads(value) if self.type is dict else value


_EXAMPLE_GEN, _TRAINER = (node_ids.EXAMPLE_GEN,), (node_ids.TRAINER,)

TABLE = (
    RuntimeParameter(
        "spans", str, (*_EXAMPLE_GEN, node_ids.ANOMALY_GATE), "data.spans"
    ),
    RuntimeParameter("data_fingerprint", str, _EXAMPLE_GEN, argument="fingerprint"),
    RuntimeParameter("compared_spans", str, (node_ids.SPAN_VALIDATOR,)),
    RuntimeParameter("batch_size", int, _TRAINER, "trainer.batch_size"),
    RuntimeParameter("epochs", int, _TRAINER, "trainer.epochs"),
    RuntimeParameter("seed", int, _TRAINER, "trainer.seed"),
    RuntimeParameter("hyperparameters", dict, _TRAINER, "trainer.hyperparameters"),
    RuntimeParameter(
        "distribution", dict, _TRAINER, "trainer.distribution", resumable=True
    ),
    RuntimeParameter("warm_start", str, _TRAINER, "trainer.warm_start"),
    RuntimeParameter("baseline", str, (node_ids.BASELINE_MODEL, node_ids.PUSHER)),
    RuntimeParameter("candidate", str, (node_ids.PUSHER,)),
    RuntimeParameter("predicted_spans", str, (node_ids.BULK_INFERRER,)),
)


def taken_by(node: str) -> tuple[RuntimeParameter, ...]:
    """The parameters that a node receives, by the id of the node."""
    return tuple(each for each in TABLE if node in each.nodes)


def applied(
    settings: Mapping[str, Any], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings with the values of a run's parameters.

    Args:
      settings: The settings, nested.
      parameters: Values by name; launchers hand whole numbers over as 3 or as 3.0.
    """
    changed = copy.deepcopy(dict(settings))
    for each in TABLE:
        if each.setting and each.name in parameters:
            *sections, name = each.setting.split(".")
            place = changed
            for section in sections:
                place = place[section]
            value = each.decode(parameters[each.name])
            is_none = value == NOTHING
            place[name] = None if is_none else int(value) if each.type is int else value
    return changed
