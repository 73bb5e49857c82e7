"""What `kubeflow/` holds for a cluster, as strictly as an API server would check it."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import yaml

from strategos.components.trainer.launchers.jobs.kubernetes.manifest import NAME_LABEL
from strategos.pipeline.checks import cluster
from strategos.pipeline.config import loading

ROOT = Path(__file__).parents[2]
SCHEMAS = json.loads(Path(__file__).with_name("kubernetes.schema.json").read_text())
MANIFESTS = {
    f"{path.stem}: {each['kind']}": each
    for path in sorted((ROOT / "kubeflow" / "manifests").glob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifest_is_one_of_its_kind(name):
    # Takes a second to import, for each of pytest's workers. Not in the newer stack.
    jsonschema = pytest.importorskip("jsonschema")
    reference = {"$ref": f"#/$defs/{SCHEMAS['kinds'][MANIFESTS[name]['kind']]}"}
    schema = {**reference, "$defs": SCHEMAS["$defs"]}
    check = jsonschema.Draft202012Validator(schema).validate
    check(MANIFESTS[name])
    assert "namespace" not in MANIFESTS[name]["metadata"]
    misspelt = copy.deepcopy(MANIFESTS[name])
    misspelt["metadata"]["nmae"] = "x"
    with pytest.raises(jsonschema.ValidationError):
        check(misspelt)


def test_steps_may_read_two_objects_and_write_their_results():
    for rule in MANIFESTS["service-account: Role"]["rules"]:
        assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
        reads = set(rule["verbs"]) <= {"get"}
        assert rule.get("resourceNames") if reads else rule["apiGroups"][0]


def test_trainer_may_handle_its_training_jobs():
    rules = MANIFESTS["training-jobs: Role"]["rules"]
    found = {tuple(rule["resources"]): rule["verbs"] for rule in rules}
    assert found == {
        ("tfjobs",): ["create", "list", "patch", "delete"],
        ("jobsets",): ["create", "list", "patch", "delete"],
        ("pods",): ["list"],
        ("pods/log",): ["get"],
    }


def test_network_policy_selects_the_pods_of_trainings():
    spec = MANIFESTS["training-jobs: NetworkPolicy"]["spec"]
    (selected,) = spec["podSelector"]["matchExpressions"]
    assert selected == {"key": NAME_LABEL, "operator": "Exists"}


@pytest.mark.parametrize("example", ["flights", "digits"])
@pytest.mark.parametrize("names", ["kubeflow", "local", "local workers"])
def test_overlays_fit_the_examples(example, names):
    folder = ROOT / "kubeflow" / "overlays"
    overlays = [str(folder / f"{name}.yaml") for name in names.split()]
    yaml_file = ROOT / "examples" / example / "pipeline.yaml"
    config = loading.load(yaml_file, overlays, ()).config
    found = cluster.check(config, config.data.listing(), "kubeflow")
    assert [str(problem) for problem in found] == []
    claims = {
        each["metadata"]["name"]
        for each in MANIFESTS.values()
        if each["kind"] == "PersistentVolumeClaim"
    }
    assert {volume.claim for volume in config.kubeflow.volumes} <= claims
