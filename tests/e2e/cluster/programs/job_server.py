"""Starts a job server in a pod of the steps' image, or prints its log and ends it."""

import json
import sys

from kubernetes import client, config

config.load_kube_config()
core, of, host, port = client.CoreV1Api(), "kubeflow", "beam-jobs", 8099
address = f"{host}.{of}:{port}"
program = "/workload/tests/lab/beam_job_server.py"
server = {
    "name": "main",
    "image": "registry.example.com/strategos:1",
    "command": ["python", "-W", "ignore", program, "/tmp", address],
    "envFrom": [{"secretRef": {"name": "object-store"}}],
    "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
}
pod = {
    "metadata": {"name": host, "labels": {"app": host}},
    "spec": {"containers": [server], "terminationGracePeriodSeconds": 0},
}
service = {
    "metadata": {"name": host},
    "spec": {"selector": {"app": host}, "ports": [{"port": port}]},
}
if sys.argv[1] == "start":
    core.create_namespaced_service(of, service)
    core.create_namespaced_pod(of, pod)
    print(json.dumps(address))
else:
    print(json.dumps(core.read_namespaced_pod_log(host, of)))
    core.delete_namespaced_pod(host, of)
    core.delete_namespaced_service(host, of)
