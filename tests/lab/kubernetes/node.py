"""The cluster's one node: containerd, kubelet, kube-proxy and DNS."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from api import Api
from certificates import NODE
from containers import containerd
from sandbox import HOST
from servers import Servers

BRIDGE = "cluster"
_PODS = "10.250.0.0/16"
_SECONDS = 180


def start(servers: Servers, state: Path, programs: Path) -> None:
    """Starts the node's processes.

    Args:
      servers: Keeps the processes.
      state: The cluster's folder, with certificates.
      programs: The folder of the programs.

    Raises:
      ClusterError: containerd did not start, or rejects an image.
    """
    (state / "containerd").mkdir()
    _write_network(state / "containerd")
    containerd.start(servers, state / "containerd", programs)
    _start_kubelet(servers, state, programs / "kubernetes")
    keys = f"{state}/certificates"
    proxy = [programs / "kubernetes", "kube-proxy", *_proxy(keys)]
    servers.start("proxy", proxy)
    (state / "Corefile").write_text(
        f"cluster.local:53 {{\n errors\n kubernetes cluster.local {{\n"
        f"  kubeconfig {keys}/admin.conf\n  ttl 1\n }}\n}}\n"
    )
    servers.start("dns", [programs / "coredns", "-conf", state / "Corefile"])


def _start_kubelet(servers: Servers, state: Path, kubernetes: Path) -> None:
    kubelet, keys = state / "kubelet", state / "certificates"
    kubelet.mkdir()
    (kubelet / "config.yaml").write_text(yaml.safe_dump(_kubelet(state)))
    servers.start(
        "kubelet",
        [
            kubernetes,
            "kubelet",
            f"--config={kubelet}/config.yaml",
            f"--kubeconfig={keys}/{NODE}.conf",
            f"--hostname-override={NODE}",
            f"--root-dir={kubelet}/root",
            f"--cert-dir={kubelet}/certificates",
            f"--node-ip={HOST}",
        ],
    )


def wait(servers: Servers, state: Path) -> None:
    """Waits until the node takes pods.

    Args:
      servers: Has the node's processes.
      state: The cluster's folder.

    Raises:
      ClusterError: The kubelet ended, or takes too long.
    """
    api = Api(state / "certificates")

    def is_ready() -> bool:
        found = api.get(f"/api/v1/nodes/{NODE}").get("status", {}).get("conditions", ())
        return {"Ready": "True"} in [{c["type"]: c["status"]} for c in found]

    servers.wait("kubelet", is_ready, _SECONDS)


def _write_network(folder: Path) -> None:
    pods = {"subnet": _PODS, "rangeStart": "10.250.1.1", "gateway": HOST}
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "ipam": {
            "type": "host-local",
            "ranges": [[pods]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": f"{folder}/addresses",
        },
    }
    (folder / "network").mkdir()
    network = {"cniVersion": "0.4.0", "name": "cluster", "plugins": [bridge]}
    (folder / "network" / "10-cluster.conflist").write_text(json.dumps(network))


def _kubelet(state: Path) -> dict:
    keys, socket = state / "certificates", f"unix://{state}/containerd/socket"
    (state / "resolv.conf").touch()
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": HOST,
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{keys}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{keys}/{NODE}.crt",
        "tlsPrivateKeyFile": f"{keys}/{NODE}.key",
        # No control group for each class of pods: works without systemd, on v1 and v2.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "containerRuntimeEndpoint": socket,
        "imageServiceEndpoint": socket,
        "clusterDNS": [HOST],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{state}/resolv.conf",
        "evictionHard": {
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "memory.available": "50Mi",
        },
        "imageGCHighThresholdPercent": 100,
        "podLogsDir": f"{state}/logs/pods",
        "volumePluginDir": f"{state}/kubelet/plugins",
        # A changed Secret reaches its pods within seconds instead of a minute.
        "syncFrequency": "5s",
    }


def _proxy(keys: str) -> list[str]:
    return [
        f"--kubeconfig={keys}/admin.conf",
        f"--hostname-override={NODE}",
        "--proxy-mode=iptables",
        f"--cluster-cidr={_PODS}",
        f"--bind-address={HOST}",
        "--healthz-bind-address=127.0.0.1:10256",
        "--metrics-bind-address=127.0.0.1:10249",
        # Limits of the whole machine stay as they are.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]
