"""Lets a TFJob's time be up."""

import sys

from kubernetes import client, config

config.load_kube_config()
patch = client.CustomObjectsApi().patch_namespaced_custom_object
change = {"spec": {"runPolicy": {"activeDeadlineSeconds": 1}}}
patch("kubeflow.org", "v1", "kubeflow", "tfjobs", sys.argv[1], change)
print("null")
