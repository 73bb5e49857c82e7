"""Logs of pods, from the Kubernetes that this machine's kubeconfig or pod names."""

from __future__ import annotations

_TIMEOUT = 10  # Seconds for a request.
_TAIL = 200  # Lines, of which KFP's launcher and Argo write some.


def read(pod: str, namespace: str, kubeconfig: str | None) -> str:
    """The end of the log of a step's pod; "" if it cannot be read.

    Args:
      pod: The pod's name.
      namespace: Its namespace.
      kubeconfig: Files with the cluster and credentials; None for the default one, or
        inside of a cluster for the account of this pod.
    """
    import urllib3
    from kubernetes import client, config

    settings = client.Configuration()
    try:
        try:
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            config.load_kube_config(kubeconfig, client_configuration=settings)
        api = client.CoreV1Api(client.ApiClient(settings))
        return api.read_namespaced_pod_log(
            pod,
            namespace,
            container="main",
            tail_lines=_TAIL,
            _request_timeout=_TIMEOUT,
        )
    except (
        config.ConfigException,
        client.ApiException,
        urllib3.exceptions.HTTPError,
        OSError,
    ):
        return ""
