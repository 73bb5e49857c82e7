"""What `kubeflow.modules` and `vertex.modules` make of a compiled pipeline."""

from __future__ import annotations

import json

import pytest
import yaml

from strategos.pipeline.config import loading
from strategos.pipeline.plan.cluster import compiling

KUBEFLOW = {"image": "x", "modules": "s3://bucket/modules"}
VERTEX = {**KUBEFLOW, "project": "p", "root": "gs://b/r"}
IN_STORE = {"kubeflow": KUBEFLOW, "vertex": VERTEX}
VARIABLE = "STRATEGOS_MODULES"


@pytest.fixture
def compiled(workload, tmp_path, bucket):
    """Compiles the workload: `compiled(section, target, *sets)` to a pipeline spec."""

    def compile_with(section, target="kubeflow", *sets):
        section = f"{target}={json.dumps(section)}"
        config = loading.load(workload, (), [section, "pusher.to=gs://b/m", *sets])
        compiling.compile_to(config.config, target, tmp_path / "out")
        spec = next(yaml.safe_load_all((tmp_path / "out").read_text()))
        return spec.get("pipelineSpec", spec)

    return compile_with


def containers(spec):
    return {
        name.removesuffix("_executor"): each["container"]
        for name, each in spec["deploymentSpec"]["executors"].items()
    }


def urls(spec):
    found = {
        name: {each["name"]: each["value"] for each in container.get("env", ())}
        for name, container in containers(spec).items()
    }
    return {name: env[VARIABLE] for name, env in found.items() if VARIABLE in env}


def without_urls(spec):
    copy = json.loads(json.dumps(spec))
    for step in ("Resolve", "RunReport", "ModelReport"):
        containers(copy)[step].pop("args")  # the settings, `modules` among them
    for container in containers(copy).values():
        env = [e for e in container.pop("env", ()) if e["name"] != VARIABLE]
        for each in env:  # what the launcher of a job needs is no part of a cache key
            each["value"] = each["value"].replace(f'"{KUBEFLOW["modules"]}"', "null")
        container |= {"env": env} if env else {}
    return copy


@pytest.mark.parametrize("target", IN_STORE)
def test_steps_that_run_a_module_get_it_and_all_else_is_as_with_the_image(
    compiled, bucket_client, target
):
    section = IN_STORE[target]
    found = compiled(section, target)
    assert urls(found).keys() == {"Transform", "Trainer"}
    for node, module in (("Transform", "preprocessing"), ("Trainer", "model")):
        key = urls(found)[node].removeprefix("s3://bucket/")
        assert key.startswith(f"modules/{module}-")
        assert bucket_client.head_object(Bucket="bucket", Key=key)
    in_image = {name: each for name, each in section.items() if name != "modules"}
    assert without_urls(found) == without_urls(compiled(in_image, target))
    assert compiled(section, target) == found


def test_training_job_gets_the_folder_of_the_modules(compiled):
    job = {"image": "x", "folder": "gs://b/jobs"}
    gang = {"strategy": "multi_worker_mirrored", "launcher": "tfjob", "tfjob": job}
    trainer = containers(
        compiled(KUBEFLOW, "kubeflow", f"trainer.distribution={json.dumps(gang)}")
    )["Trainer"]
    (operation,) = (e["value"] for e in trainer["env"] if e["name"] != VARIABLE)
    assert json.loads(operation)["job"]["modules"] == KUBEFLOW["modules"]


def test_changed_module_changes_the_steps_that_use_it(compiled, write):
    before = compiled(KUBEFLOW)
    write("model.py", "from layers import UNITS\ndef build_model(context):\n    ...\n")
    write("layers.py", "UNITS = 3\n")
    write("unrelated.py", "")
    changed = compiled(KUBEFLOW)
    write("layers.py", "UNITS = 4\n")
    again = compiled(KUBEFLOW)
    found = [urls(each) for each in (before, changed, again)]
    assert len({each["Trainer"] for each in found}) == 3
    assert len({each["Transform"] for each in found}) == 1
    tasks = [each["root"]["dag"]["tasks"] for each in (changed, again)]
    differing = {name for name in tasks[0] if tasks[0][name] != tasks[1][name]}
    assert differing == {"Trainer"}


def test_no_path_of_this_machine_is_in_the_file(compiled, write, tmp_path):
    schema = (tmp_path / "schema.pbtxt").read_text()
    write("for-image/schema.pbtxt", schema)
    section = {**KUBEFLOW, "context": "for-image"}
    found = compiled(section, "kubeflow", "schema.file=for-image/schema.pbtxt")
    text = json.dumps(found)
    assert "/workload/schema.pbtxt" in text
    parameters = found["root"]["dag"]["tasks"]["Trainer"]["inputs"]["parameters"]
    module = parameters["user_module"]["runtimeValue"]["constant"]
    assert json.loads(module)["folder"] == "/workload"
