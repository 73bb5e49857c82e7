"""The cluster's one node: containerd, kubelet, kube-proxy, DNS, and the image.

The image holds no files: a container sees this machine's `/usr`, the Python environment
that runs this script, and the checkout, read-only and at the same paths. So a change of
the code needs no new image.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import image
import yaml
from api import Api
from certificates import NODE
from failures import ClusterError
from requirements import CHECKOUT, PLUGINS
from sandbox import HOST
from servers import Servers

BRIDGE = "cluster"
IMAGE = "registry.example.com/strategos:1"
"""The image of all pods, in the name of kubeflow/overlays/kubeflow.yaml."""

_PODS = "10.250.0.0/16"
_PAUSE = "strategos.test/pause:1"
_PROGRAMS = "/opt/strategos"
_SECONDS = 180


def start(servers: Servers, state: Path, programs: Path) -> None:
    """Starts the node's processes.

    Args:
      servers: Keeps the processes.
      state: The cluster's folder, with certificates.
      programs: The folder of the programs.

    Raises:
      ClusterError: containerd did not start, or rejects the image.
    """
    _start_containerd(servers, state / "containerd", programs)
    _start_kubelet(servers, state, programs / "kubernetes")
    keys = f"{state}/certificates"
    proxy = [programs / "kubernetes", "kube-proxy", *_proxy(keys)]
    servers.start("proxy", proxy)
    (state / "Corefile").write_text(
        f"cluster.local:53 {{\n errors\n kubernetes cluster.local {{\n"
        f"  kubeconfig {keys}/admin.conf\n  ttl 1\n }}\n}}\n"
    )
    servers.start("dns", [programs / "coredns", "-conf", state / "Corefile"])


def _start_containerd(servers: Servers, folder: Path, programs: Path) -> None:
    """Starts containerd, and imports the images."""
    folder.mkdir()
    _write_network(folder)
    (folder / "base.json").write_text(json.dumps(_base(programs)))
    (folder / "config.toml").write_text(_containerd(folder))
    servers.start("containerd", ["containerd", "-c", folder / "config.toml"])
    control = ["ctr", "-a", folder / "socket", "-n", "k8s.io"]
    ping = [*control, "version"]
    servers.wait("containerd", lambda: not _call(ping).returncode, _SECONDS)
    path = f"{_PROGRAMS}:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    # The first container of a pod sees nothing of this machine.
    for name, program in ((IMAGE, None), (_PAUSE, programs / "pause")):
        archive = folder / "image.tar"
        image.write(archive, name, program, path)
        done = _call([*control, "images", "import", archive])
        if done.returncode:
            raise ClusterError(f"containerd rejects {name}: {done.stderr.strip()}")


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


def _base(programs: Path) -> dict:
    """The runtime specification that each container starts from."""
    made = _call(["ctr", "oci", "spec"])
    if made.returncode:
        raise ClusterError(f"`ctr oci spec` failed: {made.stderr.strip()}")
    spec = json.loads(made.stdout)
    seen = {path: path for path in ("/usr", "/etc/ssl", sys.base_prefix, sys.prefix)}
    seen |= {str(CHECKOUT): str(CHECKOUT), "/workload": str(CHECKOUT)}
    seen[_PROGRAMS] = str(programs)
    options = ["rbind", "ro", "rprivate"]
    spec["mounts"] += [
        {"destination": at, "type": "bind", "source": source, "options": options}
        for at, source in seen.items()
    ]
    return spec


def _containerd(folder: Path) -> str:
    """The settings of containerd; the native snapshotter works on every file system."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{folder}/socket"
[{cri}]
  sandbox_image = "{_PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [{cri}.cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{folder}/network"
  [{cri}.containerd]
    snapshotter = "native"
    [{cri}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{folder}/base.json"
      [{cri}.containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


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


def _call(words: list) -> subprocess.CompletedProcess:
    return subprocess.run(words, capture_output=True, text=True)
