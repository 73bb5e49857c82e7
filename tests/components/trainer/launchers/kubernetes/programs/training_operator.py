"""Starts and stops the operator (`scale N`), or removes the definition of TFJobs."""

import sys
import time

from kubernetes import client, config

config.load_kube_config()
apps, core = client.AppsV1Api(), client.CoreV1Api()
kinds, name = client.ApiextensionsV1Api(), "tfjobs.kubeflow.org"
operator = ("training-operator", "kubeflow")


def wait(condition):
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.2)


def scale(count):
    apps.patch_namespaced_deployment_scale(*operator, {"spec": {"replicas": count}})
    wait(lambda: is_ready() == bool(count))


def is_ready():
    found = core.read_namespaced_endpoints(*operator).subsets or ()
    return any(part.addresses for part in found)


def absent():
    try:
        kinds.read_custom_resource_definition(name)
    except client.ApiException:
        return True


if sys.argv[1] == "scale":
    scale(int(sys.argv[2]))
elif sys.argv[1] == "remove":
    kinds.delete_custom_resource_definition(name)
    wait(absent)
print("null")
