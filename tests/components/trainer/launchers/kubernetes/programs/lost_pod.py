"""Deletes the pod of a worker and lets no machine have a place for another one.

`lost_pod.py lose JOB`; with `bring-back JOB`, machines have a place again.
"""

import sys

from kubernetes import client, config

config.load_kube_config()
core, namespace = client.CoreV1Api(), "kubeflow"
action, job = sys.argv[1:]
for node in core.list_node().items:
    change = {"spec": {"unschedulable": action == "lose"}}
    core.patch_node(node.metadata.name, change)
if action == "lose":
    for pod in core.list_namespaced_pod(namespace).items:
        if pod.metadata.name.startswith(f"{job}-worker-0"):
            core.delete_namespaced_pod(pod.metadata.name, namespace)
print("null")
