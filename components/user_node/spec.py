"""The specification of a component as plain data, readable without TFX."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Mapping
from typing import Any

from strategos.components.errors import UserError

ANY = ""
"""The type of an argument that the component's specification does not declare."""

SIMPLE = {"int": int, "float": float, "str": str, "bool": bool}
"""The types of parameters that are checked by value; the component checks others."""


@dataclasses.dataclass(frozen=True)
class Argument:
    """An input, a parameter or an output.

    Attributes:
      type: Type of an artifact, e.g. `Examples`, or of a value, e.g. `int`; or `ANY`.
      optional: Whether the argument may be left out.
    """

    type: str
    optional: bool = False


@dataclasses.dataclass(frozen=True)
class Spec:
    """The arguments and outputs of a component, by name.

    Attributes:
      inputs: Arguments that take artifacts.
      parameters: Arguments that take values.
      outputs: Artifacts that the component makes.
    """

    inputs: Mapping[str, Argument]
    parameters: Mapping[str, Argument]
    outputs: Mapping[str, Argument]

    @classmethod
    def of(cls, component: Any) -> Spec:
        """Reads the specification of a TFX component class.

        Args:
          component: The class; also a function with TFX's decorator `@component`, or
            the result of `create_container_component`.

        Raises:
          UserError: Not a component, or a component that cannot be run.
        """
        declared: Any = getattr(component, "SPEC_CLASS", None)
        if not (inspect.isclass(component) and inspect.isclass(declared)):
            raise UserError(
                "is not a TFX component",
                remedy="Name a subclass of BaseComponent, a function with TFX's "
                "decorator `@component`, or a container component.",
            )
        _reject_unsupported(component)
        spec: Any = declared
        inputs = {
            name: Argument(each.type.TYPE_NAME, each.optional)
            for name, each in spec.INPUTS.items()
        }
        parameters = {
            name: Argument(
                getattr(each.type, "__name__", str(each.type)), each.optional
            )
            for name, each in spec.PARAMETERS.items()
        }
        outputs = {
            name: Argument(each.type.TYPE_NAME) for name, each in spec.OUTPUTS.items()
        }
        return cls(
            _of_constructor(component, inputs, {*parameters, *outputs}),
            _of_constructor(component, parameters, {*inputs, *outputs}),
            outputs,
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON-able values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> Spec:
        """Restores a specification from `to_json`."""
        return cls(
            **{
                kind: {name: Argument(**each) for name, each in named.items()}
                for kind, named in described.items()
            }
        )


def _of_constructor(
    component: Any, declared: Mapping[str, Argument], others: Collection[str]
) -> dict[str, Argument]:
    """The arguments of one kind that the class's constructor takes.

    Args:
      component: The class.
      declared: The arguments of this kind in the class's specification.
      others: Names of its arguments of other kinds.
    """
    takes = list(inspect.signature(component.__init__).parameters.values())[1:]
    if any(each.kind == each.VAR_KEYWORD for each in takes):
        return dict(declared)
    return {
        each.name: Argument(
            declared[each.name].type if each.name in declared else ANY,
            each.default is not each.empty,
        )
        for each in takes
        if each.name not in others
    }


def _reject_unsupported(component: Any) -> None:
    from tfx.dsl.component.experimental import executor_specs
    from tfx.dsl.components.base import base_driver, executor_spec

    kinds = (
        executor_spec.ExecutorClassSpec,
        executor_specs.TemplatedExecutorContainerSpec,
    )
    if not isinstance(component.EXECUTOR_SPEC, kinds):
        kind = type(component.EXECUTOR_SPEC).__name__
        raise UserError(
            f"has a {kind}, which is not supported",
            remedy="Name a component with an executor class, or one that is made by "
            "TFX's `create_container_component`.",
        )
    if component.DRIVER_CLASS is not base_driver.BaseDriver:
        raise UserError(
            f"has a driver of its own, {component.DRIVER_CLASS.__name__}, which is not "
            "supported",
            remedy="Do its work in the executor.",
        )
