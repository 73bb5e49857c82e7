"""Commands that upload the user's modules before anything is submitted."""

from __future__ import annotations

import json

import pytest

from strategos.pipeline import cli

SCHEDULE = "schedule={cron: '0 5 * * *'}"
COMMANDS = {
    "compile": ("compile", "--target", "kubeflow", "-o"),
    "run": ("run", "--runner", "kubeflow"),
    "schedule": ("schedule", "create", "--target", "kubeflow", "--set", SCHEDULE),
}


@pytest.fixture
def call(kfp, workload, tmp_path, capsys):
    """Calls a command: `call(name, modules, *sets)` to code and output."""

    def call(name, modules, *sets):
        section = {"image": "x", "endpoint": kfp.url, "modules": modules}
        given = [f"kubeflow={json.dumps(section)}", "pusher.to=s3://bucket/m", *sets]
        words = [word for each in given for word in ("--set", each)]
        first = 2 if name == "schedule" else 1
        command = [*COMMANDS[name][:first], str(workload), *COMMANDS[name][first:]]
        command += [str(tmp_path / "out")] if name == "compile" else []
        code = cli.main([*command, *words])
        said = capsys.readouterr()
        return code, said.out + said.err

    return call


@pytest.mark.parametrize("command", COMMANDS)
def test_modules_are_uploaded_once(call, command, bucket, bucket_client, kfp):
    url = f"{bucket}/{command}"
    assert [call(command, url)[0] for _ in range(2)] == [0, 0]
    listed = bucket_client.list_objects_v2(Bucket="bucket", Prefix=f"{command}/")
    names = [each["Key"].rpartition("/")[2] for each in listed["Contents"]]
    assert [name.rpartition("-")[0] for name in names] == ["model", "preprocessing"]
    runs = [*kfp.runs.values(), *kfp.recurring.values()]
    assert all(names[0] in json.dumps(run["pipeline_spec"]) for run in runs)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("reason", ["bucket", "endpoint"])
def test_store_that_takes_nothing_is_one_message_and_nothing_is_submitted(
    call, command, reason, bucket, kfp, monkeypatch, tmp_path
):
    url = f"{bucket}/modules" if reason != "bucket" else "s3://absent/modules"
    if reason == "endpoint":
        monkeypatch.setenv("S3_ENDPOINT", "http://127.0.0.1:9")
    code, said = call(command, url)
    assert code == 2, said
    assert f"kubeflow.modules: {url}: nothing can be written there" in said
    assert "Check the bucket, and the credentials" in said
    assert "Traceback" not in said
    assert not (kfp.runs or kfp.recurring or (tmp_path / "out").exists())


def test_problems_of_the_settings_come_first_and_all_at_once(call, kfp, bucket):
    sets = ("name=flights-", "pusher.to=serving")
    code, said = call("run", "s3://absent/modules", *sets)
    assert code == 2 and "name: " in said and "pusher.to: " in said
    assert "kubeflow.modules" not in said
