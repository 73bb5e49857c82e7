"""Writes a kubeconfig for a service account, as which a launcher runs."""

import json
import os
import sys
from pathlib import Path

import yaml
from kubernetes import client, config

account, file = sys.argv[1:]
config.load_kube_config()
create = client.CoreV1Api().create_namespaced_service_account_token
token = create(account, "kubeflow", {"spec": {"expirationSeconds": 7200}}).status.token
settings = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
settings["users"][0]["user"] = {"token": token}
Path(file).write_text(yaml.safe_dump(settings))
print(json.dumps(file))
