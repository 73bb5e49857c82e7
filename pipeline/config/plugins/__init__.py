"""Names and settings of plug-ins in the YAML; see `components.plugins`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import (
    BaseModel,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic_core import CoreSchema, InitErrorDetails, core_schema

from strategos.components.errors import Place, UserError
from strategos.components.plugins import Registry
from strategos.components.wording import did_you_mean, listed
from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import (
    from_pydantic,
    raise_all,
    received,
    reject,
    reject_at,
)
from strategos.pipeline.config.types import finite


@dataclass(frozen=True)
class Checked(Allowed):
    """A validator of a key, beside its type, with a description of allowed values.

    Attributes:
      check: Takes a value of the type, and returns it or another one.
      schema: Keywords to add to the JSON Schema of the type, e.g. `anyOf`.
    """

    check: Callable[[Any], Any]
    schema: dict[str, Any] = field(default_factory=dict)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), **self.schema}


def named(registry: Registry[Any]) -> Checked:
    """Allows names of plug-ins for a key: `Annotated[str, named(REGISTRY)]`.

    Args:
      registry: The plug-ins.
    """

    def check(name: str) -> str:
        for problem in problems(registry, name):
            raise reject(**problem)
        return name

    own = list(registry.own)
    return Checked(
        f"{listed(own, 'or')}, or the name of a plug-in",
        check,
        {"anyOf": [{"enum": own}, {"type": "string"}]},
    )


def chosen(registry: Registry[Any]) -> Checked:
    """Allows plug-ins' settings by name for a key: `Annotated[dict, chosen(REGISTRY)]`.

    Args:
      registry: The plug-ins; their `settings` are pydantic models or None.
    """

    def check(options: dict[str, Any]) -> dict[str, Any]:
        finite(options)
        errors: list[InitErrorDetails] = []
        for name, settings in options.items():
            wrong = list(problems(registry, name))
            if name in registry.own:
                wrong = [
                    {"message": f"`{name}` is no plug-in: it has a key of its own"}
                ]
            elif not isinstance(settings, dict | None):
                wrong = [{"received": received(settings), "expected": "a mapping"}]
            errors += (reject_at((name,), **each) for each in wrong)
            if not wrong:
                model = registry[name].settings
                errors += settings_problems(model, settings or {}, (name,))
        if errors:
            raise_all(errors)
        return {
            name: valid_settings(registry[name].settings, settings or {})
            for name, settings in options.items()
        }

    return Checked("a mapping of names of plug-ins to their settings", check)


def problems(registry: Registry[Any], name: str) -> Iterator[dict[str, str]]:
    """Yields the fields of an error if a name stands for no usable plug-in.

    Args:
      registry: The plug-ins.
      name: The name.
    """
    if name in registry.own:  # which may take long to import
        return
    try:
        registry[name]
    except KeyError:
        known = list(registry)
        yield {
            "received": received(name),
            "expected": listed(known, "or"),
            "remedy": did_you_mean(name, known),
        }
    except UserError as error:
        yield {"message": error.message, "remedy": error.remedy}


def settings_problems(
    model: type[BaseModel] | None, settings: Mapping[str, Any], loc: tuple[str, ...]
) -> Iterator[InitErrorDetails]:
    """Yields the errors in a plug-in's settings, in the words of any other section.

    Args:
      model: The settings that the plug-in declares; None for no settings.
      settings: The settings in the YAML.
      loc: Path of `settings` below the section of the calling validator.
    """
    if model is None:
        if settings:
            yield reject_at(loc, "has no effect: the plug-in takes no settings")
        return
    try:
        model.model_validate(settings)
    except ValidationError as error:
        for each in from_pydantic(error, model, lambda *_: Place("")):
            yield reject_at(
                (*loc, *each.key.split(".")),
                each.message,
                received=each.received,
                expected=each.expected,
                remedy=each.remedy,
            )


def valid_settings(
    model: type[BaseModel] | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """A plug-in's settings with its defaults, as JSON-able values.

    Args:
      model: The settings that the plug-in declares; None for no settings.
      settings: The settings in the YAML, already checked by `settings_problems`.
    """
    return model.model_validate(settings).model_dump(mode="json") if model else {}
