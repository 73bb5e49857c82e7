"""A client of Kubernetes' API, by the credentials of this machine or pod."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from strategos.components.errors import UserError

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def connect(launcher: str = "") -> tuple[ApiClient, str]:
    """Returns a client, and the namespace of its credentials.

    The first that exists is used: the files in KUBECONFIG, the service account of this
    pod, or ~/.kube/config.

    Args:
      launcher: The launcher that connects, for messages.

    Raises:
      UserError: No usable credentials exist.
    """
    from kubernetes import client, config

    settings = client.Configuration()
    file = os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
    try:
        if not os.environ.get("KUBECONFIG") and _NAMESPACE_FILE.exists():
            config.load_incluster_config(client_configuration=settings)
            return client.ApiClient(settings), _NAMESPACE_FILE.read_text().strip()
        config.load_kube_config(file, client_configuration=settings)
        _, context = config.list_kube_config_contexts(file)
    except config.ConfigException as error:
        raise UserError(
            f"no cluster can be reached from here: {error}",
            key="trainer.distribution.launcher",
            received=launcher,
            remedy="Set KUBECONFIG, or run in a pod with a service account.",
        ) from None
    return client.ApiClient(settings), context["context"].get("namespace") or "default"
