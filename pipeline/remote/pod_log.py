"""Logs of pods, from the Kubernetes that this machine's kubeconfig or pod names."""

from __future__ import annotations

from strategos.components.errors import UserError
from strategos.components.services import kubernetes_client

_TIMEOUT = 10  # Seconds for a request.
_TAIL = 200  # Lines, of which KFP's launcher and Argo write some.


def read(pod: str, namespace: str) -> str:
    """The end of the log of a step's pod; "" if it cannot be read.

    Args:
      pod: The pod's name.
      namespace: Its namespace.
    """
    import urllib3
    from kubernetes import client

    try:
        connection, _ = kubernetes_client.connect()
        api = client.CoreV1Api(connection)
        return api.read_namespaced_pod_log(
            pod,
            namespace,
            container="main",
            tail_lines=_TAIL,
            _request_timeout=_TIMEOUT,
        )
    except (UserError, client.ApiException, urllib3.exceptions.HTTPError, OSError):
        return ""
