"""The types of single values that concern Kubernetes and containers."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import received, reject

WORKLOAD = "/workload"
"""The folder of the build context in an image, see `kubeflow/Dockerfile`."""

_OCCUPIED = (WORKLOAD, "/minio", "/s3", "/gcs", "/kfp-launcher")


def _number_as_text(value: object) -> object:
    return str(value) if type(value) in (int, float) else value


def _is_free(path: str) -> str:
    occupied = [each for each in _OCCUPIED if f"{path}/".startswith(f"{each}/")]
    if occupied or path == "/":
        raise reject(
            f"{occupied[0] if occupied else path} is in use in each step",
            received=received(path),
            remedy="Mount it at another path, such as /mnt/NAME.",
        )
    return path


Cpu = Annotated[
    str,
    BeforeValidator(_number_as_text),
    StringConstraints(pattern=r"^([1-9][0-9]*(\.[0-9]{1,3}|m)?|0?\.[0-9]{1,3})$"),
    Allowed("cores, such as 2, 0.5 or 500m"),
    Field(json_schema_extra={"type": ["string", "number"]}),
]
Memory = Annotated[
    str,
    StringConstraints(pattern=r"^[1-9][0-9]*(\.[0-9]+)?([kMGTP]|[KMGTP]i)$"),
    Allowed("a quantity of Kubernetes, such as 8Gi or 500M"),
]
ClusterName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"),
    Allowed("a name of Kubernetes: lower-case letters, digits, `-` and `.`"),
]
Endpoint = Annotated[
    str,
    StringConstraints(pattern=r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$"),
    Allowed("a URL without credentials, such as http://localhost:8888"),
]
MetadataService = Annotated[
    str,
    StringConstraints(pattern=r"^grpc://[A-Za-z0-9.-]+:[0-9]{1,5}$"),
    Allowed("grpc://HOST:PORT, such as grpc://localhost:8080"),
]
LabelKey = Annotated[
    str,
    StringConstraints(
        pattern=r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?"
        r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
    ),
    Allowed("the key of a label, such as cloud.google.com/gke-spot"),
]
LabelValue = Annotated[
    str,
    StringConstraints(pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"),
    Allowed('the value of a label: text, so `"true"` in quotes'),
]
Variable = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"),
    Allowed("the name of an environment variable"),
]
FolderOrUrl = Annotated[
    str,
    StringConstraints(pattern=r"^(/|(s3|gs)://[^/\s]+/)[^/\s:]+(/[^/\s:]+)*/?$"),
    Allowed("s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or an absolute path"),
]
FolderUrl = Annotated[
    str,
    StringConstraints(pattern=r"^(s3|gs)://[^/\s]+(/[^/\s]+)*/?$"),
    Allowed("s3://BUCKET/FOLDER or gs://BUCKET/FOLDER"),
]
MountPath = Annotated[
    str,
    StringConstraints(pattern=r"^/([^/\s:]+(/[^/\s:]+)*)?$"),
    Allowed("an absolute path in the container, such as /mnt/serving"),
    AfterValidator(_is_free),
]
