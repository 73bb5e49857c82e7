"""Components of one's own: functions, one of them with a Beam pipeline, and a class."""

import os
import sys

import apache_beam as beam
import helper
from tfx.dsl.component.experimental import placeholders
from tfx.dsl.component.experimental.annotations import (
    BeamComponentParameter,
    InputArtifact,
    OutputArtifact,
    Parameter,
)
from tfx.dsl.component.experimental.container_component import (
    create_container_component,
)
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.base import base_component, base_executor
from tfx.dsl.components.base.executor_spec import ExecutorClassSpec
from tfx.types import Channel, ComponentSpec
from tfx.types.component_spec import ChannelParameter, ExecutionParameter
from tfx.types.standard_artifacts import (
    Examples,
    HyperParameters,
    Model,
    TransformGraph,
)

from strategos import GateStoppedError


@component
def Count(
    examples: InputArtifact[Examples],
    counted: OutputArtifact[HyperParameters],
    times: Parameter[float] = 1.0,
    unit: Parameter[str] = "files",
):
    with open(os.path.join(counted.uri, "count.txt"), "w") as file:
        file.write(helper.text(examples.uri, times, unit))


@component
def Gate(counted: InputArtifact[HyperParameters], most: Parameter[float]):
    with open(os.path.join(counted.uri, "count.txt")) as file:
        count = float(file.read().split()[0])
    if count > most:
        raise GateStoppedError(f"{count:g} is more than {most:g}")
    1 / most


@component
def Features(
    examples: InputArtifact[Examples],
    transformed_examples: OutputArtifact[Examples],
    transform_graph: OutputArtifact[TransformGraph],
):
    pass


@component(use_beam=True)
def Beamed(
    counted: OutputArtifact[HyperParameters],
    pipeline: BeamComponentParameter[beam.Pipeline] = None,
):
    with pipeline as p:
        rows = p | beam.Create([1, 2, 3]) | beam.CombineGlobally(sum)
        _ = rows | beam.io.WriteToText(os.path.join(counted.uri, "sum"))


class Executor(base_executor.BaseExecutor):
    def Do(self, input_dict, output_dict, exec_properties):
        assert sorted(exec_properties) == ["depth"]
        with open(os.path.join(output_dict["copy"][0].uri, "depth"), "w") as file:
            file.write(str(exec_properties["depth"] * len(input_dict["model"])))


class CopySpec(ComponentSpec):
    PARAMETERS = {"depth": ExecutionParameter(type=int, optional=True)}
    INPUTS = {"model": ChannelParameter(type=Model)}
    OUTPUTS = {"copy": ChannelParameter(type=Model)}


class Copy(base_component.BaseComponent):
    SPEC_CLASS = CopySpec
    EXECUTOR_SPEC = ExecutorClassSpec(Executor)

    def __init__(self, model: Channel, depth: int = 2):
        super().__init__(CopySpec(model=model, depth=depth, copy=Channel(type=Model)))


Shout = create_container_component(
    name="Shout",
    image="localhost/strategos-busybox:1",
    command=[
        "sh",
        "-c",
        'cat "$0/count.txt" | tr a-z A-Z > "$1/count.txt" && echo said $2 && exit $3',
        placeholders.InputUriPlaceholder("counted"),
        placeholders.OutputUriPlaceholder("shouted"),
        placeholders.ConcatPlaceholder(
            ["it ", placeholders.InputValuePlaceholder("word")]
        ),
        placeholders.InputValuePlaceholder("code"),
    ],
    inputs={"counted": HyperParameters},
    outputs={"shouted": HyperParameters},
    parameters={"word": str, "code": int},
)


def plain(rows):
    return rows


IS_HERE = "own" in sys.modules
