"""Installs Kubeflow: the definitions of its resources, then `manifests/`.

Then the namespace gets what kubeflow/manifests has for each namespace with pipelines.
"""

from __future__ import annotations

import time
from pathlib import Path

from api import Api
from failures import ClusterError
from requirements import CHECKOUT

NAMESPACE = "kubeflow"
_MANIFESTS = Path(__file__).parent / "manifests"
_OPERATORS_PART = CHECKOUT / "kubeflow" / "manifests"
_SECONDS = 300


def install(state: Path, definitions: Path) -> None:
    """Applies everything, and waits until all deployments are ready.

    Args:
      state: The cluster's folder.
      definitions: The folder of the custom resource definitions.

    Raises:
      ClusterError: An object is rejected, or a deployment is not ready in time.
    """
    api = Api(state / "certificates")
    api.apply(sorted(definitions.iterdir()))
    volume = state / "volumes" / "serving"
    volume.mkdir(parents=True)
    volume.chmod(0o777)  # containers of loaded images run as any user
    api.apply([_MANIFESTS / "namespace.yaml"])
    (state / "manifests").mkdir()
    for file in sorted(_MANIFESTS.iterdir()):
        text = file.read_text().replace("STATE", str(state))
        (state / "manifests" / file.name).write_text(text)
    api.apply(sorted((state / "manifests").iterdir()), NAMESPACE)
    api.apply(sorted(_OPERATORS_PART.glob("*.yaml")), NAMESPACE)
    end = time.monotonic() + _SECONDS
    while waiting := _not_ready(api):
        if time.monotonic() > end:
            raise ClusterError(
                f"not ready after {_SECONDS} s: {', '.join(waiting)}; "
                f"logs: {state}/logs/pods"
            )
        time.sleep(0.3)


def _not_ready(api: Api) -> list[str]:
    listed = api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
    return [
        each["metadata"]["name"]
        for each in listed.get("items", ())
        if not each.get("status", {}).get("readyReplicas")
    ]
