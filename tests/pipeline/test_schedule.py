"""What `strategos schedule export` prints for other clocks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from types import SimpleNamespace

import pytest
import yaml

from strategos.pipeline import cli


def export(capsys, workload, to, *arguments, expect=0):
    code = cli.main(["schedule", "export", str(workload), "--to", to, *arguments])
    assert code == expect
    return capsys.readouterr()


@pytest.mark.parametrize(
    ("every", "fields"),
    [("1m", "*/1 * * * *"), ("15m", "*/15 * * * *"), ("1h", "0 * * * *")],
)
def test_a_line_of_cron(workload, capsys, every, fields):
    line = export(capsys, workload, "cron", "--every", every).out
    assert line.startswith(f"{fields}  ")
    assert f"retrain {workload} --if-due >> {workload.parent}/retrain.log" in line


def test_cron_ends_a_command_at_a_percent_sign_that_is_not_escaped(workload, capsys):
    setting = "data.spans=1..2"
    overlay = workload.parent / "100%.yaml"
    overlay.write_text("trainer: {epochs: 2}\n")
    words = ("--overlay", str(overlay), "--set", setting)
    line = export(capsys, workload, "cron", *words).out
    assert rf"--overlay {workload.parent}/100\%.yaml --set {setting} --if-due" in line


@pytest.mark.parametrize("every", ["30s", "7m", "2h"])
def test_what_cron_cannot_do_is_told(workload, capsys, every):
    told = export(capsys, workload, "cron", "--every", every, expect=2).err
    assert "--every: received" in told
    assert "minutes that divide an hour" in told


def test_units_of_systemd_are_valid(workload, capsys, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    words = ("--every", "30s", "--set", 'trainer.hyperparameters={"a b": "$5 50%"}')
    printed = export(capsys, workload, "systemd", *words).out
    units = {}
    for part in printed.split("# /etc/systemd/system/")[1:]:
        name, text = part.split("\n", 1)
        units[name] = tmp_path / name
        units[name].write_text(text)
    assert list(units) == ["strategos-flights.service", "strategos-flights.timer"]
    done = subprocess.run(
        ["systemd-analyze", "verify", *units.values()], capture_output=True, text=True
    )
    told = [line for line in done.stderr.splitlines() if "strategos-flights" in line]
    assert not told
    service = units["strategos-flights.service"].read_text()
    assert r'"trainer.hyperparameters={\"a b\": \"$$5 50%%\"}" --if-due' in service


_POD = """\
kubeflow:
  image: registry/strategos:1
  steps: {default: {cpu: "2", memory: 4Gi, tolerations: [{key: spot}]}}
  volumes: [{claim: models, path: /models}]
  secrets: [{name: keys, path: /keys, env: {STRATEGOS_METADATA_PASSWORD: password}}]
  config_maps: [{name: settings, env: {STRATEGOS_WEBHOOK: url}}]
  image_pull_secrets: [pull]
run: {root: /models/runs}
"""


def test_a_cronjob_is_one_to_kubernetes(workload, capsys):
    """Its own client reads all of it: a field of another name would be lost."""
    client = pytest.importorskip("kubernetes.client")
    overlay = workload.parent / "pod.yaml"
    overlay.write_text(_POD)
    words = ("--overlay", str(overlay), "--every", "5m")
    made = yaml.safe_load(export(capsys, workload, "cronjob", *words).out)
    api = client.ApiClient()
    read = api.deserialize(SimpleNamespace(data=json.dumps(made)), "V1CronJob")
    assert api.sanitize_for_serialization(read) == made
    assert (made["metadata"]["name"], made["spec"]["schedule"]) == (
        *("strategos-flights", "*/5 * * * *"),
    )
    (container,) = read.spec.job_template.spec.template.spec.containers
    assert container.command == [
        *("strategos", "retrain", f"/workload/{workload.name}"),
        *("--overlay", "/workload/pod.yaml", "--if-due"),
    ]
    assert {each.name for each in container.env} == {
        *("STRATEGOS_METADATA_PASSWORD", "STRATEGOS_WEBHOOK"),
    }
    assert {each.mount_path for each in container.volume_mounts} == {"/models", "/keys"}


def test_paths_of_the_pod_are_not_looked_for_here(workload, capsys, as_another_user):
    """Nobody may write to the root of this machine, where the volume would be."""
    folder = as_another_user / "pipeline"
    with contextlib.suppress(PermissionError):
        os.seteuid(0)  # to read the workload
    shutil.copytree(workload.parent, folder)
    folder.chmod(0o755)
    overlay = folder / "pod.yaml"
    overlay.write_text(f"{_POD}notify: {{webhook: true, command: [tell]}}\n")
    words = ("--overlay", str(overlay), "--set", "pusher.to=/models/serving")
    made = []
    for user in (0, 65534):  # the first imports what only root can read
        with contextlib.suppress(PermissionError):
            os.seteuid(user)
        made.append(export(capsys, folder / workload.name, "cronjob", *words).out)
    assert made[0] == made[1]
    words = (*words, "--set", "pusher.to=/elsewhere")
    error = export(capsys, folder / workload.name, "cronjob", *words).err
    assert (
        "it is /elsewhere inside a container, and deleted with the container" in error
    )


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        ((), "kubeflow: is missing"),
        (("kubeflow.image=a",), "run.root: .*a pod loses this folder at its end"),
        (
            ("kubeflow.image=a", "kubeflow.context=elsewhere"),
            "kubeflow.context: .*YAML",
        ),
    ],
)
def test_what_a_pod_would_not_have_is_named(workload, capsys, sets, told):
    words = [word for each in sets for word in ("--set", each)]
    error = export(capsys, workload, "cronjob", *words, expect=2).err
    assert re.search(told, error), error
