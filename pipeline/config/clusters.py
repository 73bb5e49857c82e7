"""The sections `kubeflow` and `vertex`: what `strategos compile` needs for each one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.types import PathText, Section, Text


class Kubeflow(Section):
    """Settings of `strategos compile --target kubeflow`."""

    image: Text = Field(description="Container image that holds Strategos.")
    root: Text = Field(
        "minio://mlpipeline/v2/artifacts", description="URL of the artifacts."
    )
    context: PathText = Field(
        ".",
        validate_default=True,
        description="Folder that the image contains as `/workload`, with the modules, "
        "the schema and the data.",
    )


class Vertex(Section):
    """Settings of `strategos compile --target vertex`."""

    project: Text = Field(description="Google Cloud project.")
    region: Text = Field("us-central1", description="Google Cloud region.")
    image: Text = Field(description="Container image that holds Strategos.")
    root: Annotated[
        str, StringConstraints(pattern="^gs://[^/]+"), Allowed("gs://BUCKET/FOLDER")
    ] = Field(description="URL of the artifacts.")
    context: PathText = Field(
        ".",
        validate_default=True,
        description="Folder that the image contains as `/workload`, with the modules, "
        "the schema and the data.",
    )
