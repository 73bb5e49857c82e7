"""The section `nodes`: the user's own components."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.types import Hyperparameters, Section, Texts

NodeName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]{0,62}$"),
    Allowed("letters and digits, first a letter, at most 63"),
]
Output = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]*\.[A-Za-z_]\w*$"),
    Allowed("`NODE.OUTPUT`, such as `ExampleGen.examples`"),
]
Component = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"),
    Allowed("`module:Name`, such as `fairness:FairnessGate`"),
]


class Node(Section):
    """A component of the user's own, as a node of the pipeline."""

    component: Component = Field(
        description="`module:Name` of a TFX component class, of a function with TFX's "
        "decorator `@component`, or of a container component."
    )
    inputs: dict[str, Output] = Field(
        default_factory=dict,
        description="The output that each input of the component takes, as "
        "`NODE.OUTPUT`.",
    )
    parameters: Hyperparameters = Field(
        default_factory=dict,
        description="The values of the component's parameters; part of the cache key.",
    )
    after: Texts = Field(
        (), description="Nodes that finish before this one starts, besides its inputs'."
    )
    before: Texts = Field(
        (),
        description="Nodes that wait for this one. A gate's default: every node after "
        "those that make its inputs, but for other gates.",
    )
    gate: bool = Field(
        False,
        description="Whether the component may stop the run, with exit code 3, by "
        "raising `strategos.GateStoppedError`.",
    )
    replaces: (
        Literal[
            "StatisticsGen",
            "SchemaGen",
            "ImportSchemaGen",
            "ExampleValidator",
            "Transform",
        ]
        | None
    ) = Field(
        None,
        description="Node of Strategos that this one stands for. It needs outputs of "
        "the same names and types, runs after the same nodes, and its outputs are what "
        "the others take.",
    )
    files: Texts = Field(
        (),
        description="Files, folders or globs, relative to the YAML, on which the "
        "component depends in a way that a run cannot record. Their contents are part "
        "of the cache key.",
    )

    @property
    def module(self) -> str:
        """The module in `component`."""
        return self.component.partition(":")[0]

    @property
    def name(self) -> str:
        """The class or function in `component`."""
        return self.component.partition(":")[2]

    @property
    def producers(self) -> dict[str, tuple[str, str]]:
        """The node and its output that each input takes."""
        parts = {key: each.partition(".") for key, each in self.inputs.items()}
        return {key: (node, output) for key, (node, _, output) in parts.items()}


Nodes = dict[NodeName, Node]
