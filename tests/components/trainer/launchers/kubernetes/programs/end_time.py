"""Lets the time of a TFJob, or of the Jobs of a JobSet, be up."""

import sys

from kubernetes import client, config

config.load_kube_config()
launcher, name = sys.argv[1:]
limit = {"activeDeadlineSeconds": 1}
if launcher == "tfjob":
    patch = client.CustomObjectsApi().patch_namespaced_custom_object
    change = {"spec": {"runPolicy": limit}}
    patch("kubeflow.org", "v1", "kubeflow", "tfjobs", name, change)
else:
    patch = client.BatchV1Api().patch_namespaced_job
    for kind in ("chief", "worker"):
        patch(f"{name}-{kind}-0", "kubeflow", {"spec": limit})
print("null")
