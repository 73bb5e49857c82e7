"""Compares the inputs and parameters of `nodes` with the components' specifications."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from strategos.components import node_ids
from strategos.components.errors import UserError
from strategos.components.user_node import USER_MODULE
from strategos.components.user_node.spec import ANY, SIMPLE, Argument, Spec
from strategos.components.wording import choices, did_you_mean
from strategos.pipeline.config.nodes.sections import Node
from strategos.pipeline.config.problems import received
from strategos.pipeline.config.sections import Config


def problems(config: Config, specs: Mapping[str, Spec]) -> Iterator[UserError]:
    """Yields inputs, outputs and parameters that violate the components' specs.

    Args:
      config: The effective settings.
      specs: The specifications that are known, by node.
    """
    for name, spec in specs.items():
        node, key = config.nodes[name], f"nodes.{name}"
        yield from _input_problems(config, name, specs)
        for argument, value in node.parameters.items():
            here = f"{key}.parameters.{argument}"
            if argument not in spec.parameters or argument == USER_MODULE:
                yield _unknown(config, here, node, argument, spec.parameters)
            elif wanted := _wrong(value, spec.parameters[argument]):
                yield config.problem(here, received=received(value), expected=wanted)
        yield from _output_problems(config, name, spec)
        names = {*node.inputs, *node.parameters}
        for kind in ("inputs", "parameters"):
            for argument, each in getattr(spec, kind).items():
                if not (each.optional or argument in names):
                    names.add(argument)
                    yield config.problem(
                        key,
                        f"`{node.component}` needs `{kind}.{argument}`"
                        + f", of type {each.type}" * (each.type != ANY),
                        remedy=f"Add `{argument}` to `{key}.{kind}`.",
                    )


def _input_problems(
    config: Config, name: str, specs: Mapping[str, Spec]
) -> Iterator[UserError]:
    node, inputs = config.nodes[name], specs[name].inputs
    for argument, (producer, output) in node.producers.items():
        key = f"nodes.{name}.inputs.{argument}"
        if argument not in inputs:
            yield _unknown(config, key, node, argument, inputs)
            continue
        outputs = node_ids.OUTPUTS.get(producer)
        if outputs is None:
            if producer not in specs:
                continue  # its types are known once it has been compiled
            outputs = {k: each.type for k, each in specs[producer].outputs.items()}
        wanted = inputs[argument].type
        if output not in outputs:
            yield config.problem(
                key,
                f"{producer} has no output `{output}`",
                expected=", ".join(f"{producer}.{each}" for each in outputs) or "none",
            )
        elif wanted not in (ANY, outputs[output]):
            yield config.problem(
                key,
                received=f"{producer}.{output}, of type {outputs[output]}",
                expected=f"an output of type {wanted}",
            )


def _output_problems(config: Config, name: str, spec: Spec) -> Iterator[UserError]:
    """Yields a problem if a node lacks outputs of the node that it replaces."""
    node = config.nodes[name]
    made = {key: each.type for key, each in spec.outputs.items()}
    wanted = node_ids.OUTPUTS[node.replaces] if node.replaces else {}
    if wanted.items() - made.items():
        yield config.problem(
            f"nodes.{name}.replaces",
            f"`{node.component}` has the outputs {_typed(made)}",
            remedy=f"Give it those of {node.replaces}: {_typed(wanted)}.",
        )


def _typed(outputs: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in outputs.items()) or "none"


def _unknown(
    config: Config, key: str, node: Node, argument: str, known: Mapping[str, Argument]
) -> UserError:
    kind = "input" if ".inputs." in key else "parameter"
    return config.problem(
        key,
        f"`{node.component}` has no {kind} `{argument}`",
        expected=choices(list(known)),
        remedy=did_you_mean(argument, known, "Remove it."),
    )


def _wrong(value: Any, argument: Argument) -> str:
    """The values that an argument takes, if `value` is none of them; else ""."""
    kind = SIMPLE.get(argument.type)
    if kind is None or (argument.optional and value is None):
        return ""
    fits = type(value) is kind or (kind is float and type(value) is int)
    names = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
    }
    return "" if fits else names[kind]


_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
}
