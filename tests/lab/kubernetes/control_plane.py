"""Kubernetes without its nodes: etcd, API server, controllers, scheduler."""

from __future__ import annotations

from pathlib import Path

from api import Api
from sandbox import HOST
from servers import Servers

SERVICES = "10.96.0.0/16"
_ETCD = "http://127.0.0.1:2379"
_SECONDS = 180


def start(servers: Servers, state: Path, programs: Path) -> None:
    """Starts the control plane and waits for the API server.

    Args:
      servers: Keeps the processes.
      state: The cluster's folder, with certificates.
      programs: The folder of the programs.

    Raises:
      ClusterError: A process did not start.
    """
    keys = state / "certificates"
    kubernetes = programs / "kubernetes"
    servers.start(
        "etcd",
        [
            programs / "etcd",
            f"--data-dir={state}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--log-level=warn",
        ],
    )
    servers.start("apiserver", [kubernetes, "kube-apiserver", *_api_server(keys)])
    api = Api(keys)
    servers.wait("apiserver", lambda: api.is_ok("/readyz"), _SECONDS)
    common = [f"--kubeconfig={keys}/admin.conf", "--leader-elect=false"]
    common += ["--bind-address=127.0.0.1"]
    servers.start("scheduler", [kubernetes, "kube-scheduler", *common])
    servers.start(
        "controller-manager",
        [
            kubernetes,
            "kube-controller-manager",
            *common,
            f"--service-account-private-key-file={keys}/tokens.key",
            f"--root-ca-file={keys}/ca.crt",
            "--use-service-account-credentials=true",
            f"--cluster-signing-cert-file={keys}/ca.crt",
            f"--cluster-signing-key-file={keys}/ca.key",
        ],
    )


def _api_server(keys: Path) -> list[str]:
    return [
        f"--etcd-servers={_ETCD}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        "--secure-port=6443",
        f"--client-ca-file={keys}/ca.crt",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys}/tokens.pub",
        f"--service-account-signing-key-file={keys}/tokens.key",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={keys}/admin.crt",
        f"--kubelet-client-key={keys}/admin.key",
        "--kubelet-preferred-address-types=InternalIP",
    ]
