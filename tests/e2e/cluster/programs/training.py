"""Prints the TFJobs of a run that have not ended, their owners, and the steps' pods.

Before, `delete POD` deletes such a pod, and `limit POD` lets its time be up.
"""

import json
import sys

from kubernetes import client, config

config.load_kube_config()
core, of = client.CoreV1Api(), "kubeflow"
run_id, *action = sys.argv[1:]
if action[:1] == ["delete"]:
    core.delete_namespaced_pod(action[1], of)
if action[:1] == ["limit"]:
    core.patch_namespaced_pod(action[1], of, {"spec": {"activeDeadlineSeconds": 1}})

label = f"pipeline/runid={run_id}"
pods = core.list_namespaced_pod(of, label_selector=label).items
workflows = {pod.metadata.labels["workflows.argoproj.io/workflow"] for pod in pods}
steps = [
    pod.metadata.name
    for pod in pods
    if pod.status.phase == "Running" and "-system-container-impl-" in pod.metadata.name
]
kind = "kubeflow.org", "v1", of, "tfjobs"


def is_live(job):
    conditions = job.get("status", {}).get("conditions", ())
    return not {"Failed", "Succeeded"} & {each["type"] for each in conditions}


def owner_of(job):
    (owner,) = job["metadata"]["ownerReferences"]  # the pod of a step
    return owner["name"]


def is_of_run(job):
    return any(owner_of(job).startswith(f"{workflow}-") for workflow in workflows)


jobs = [
    job
    for job in client.CustomObjectsApi().list_namespaced_custom_object(*kind)["items"]
    if is_live(job) and is_of_run(job)
]
named = [[job["metadata"]["name"], job["metadata"]["uid"]] for job in jobs]
owners = [owner_of(job) for job in jobs]
print(json.dumps({"jobs": named, "owners": owners, "steps": steps}))
