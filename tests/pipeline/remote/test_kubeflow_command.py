"""`strategos run --runner kubeflow` against an API that plays KFP."""

from __future__ import annotations

import os
import re
from pathlib import Path

from strategos.components import events
from strategos.components.files import temporary
from strategos.pipeline import cli
from strategos.pipeline.remote import watch

# ML Metadata or KFP's cache did not answer KFP's launcher, before the step's program.
PANIC = """\
panic: runtime error: invalid memory address or nil pointer dereference
goroutine 1 [running]:
github.com/kubeflow/pipelines/backend/src/v2/component.(*LauncherV2).publish(0x2f3b3dc0)
Error: exit status 2
"""


def strategos(kfp, workload, *words):
    overlay = workload.with_name("cluster.yaml")
    overlay.write_text(f"kubeflow: {{image: x, endpoint: '{kfp.url}'}}\n")
    sets = ["--set", "pusher.to=s3://models/flights"]
    command = ["run", str(workload), "--overlay", str(overlay), *sets]
    return cli.main([*command, "--runner", "kubeflow", *words])


def test_missing_data_are_made_before_a_run_is_submitted(kfp, workload, write, capsys):
    write("making.py", "def prepare(folder):\n    raise OSError('no network')\n")
    sets = ("--set", "data.examples=made/*.csv", "--set", "data.prepare=making")
    assert strategos(kfp, workload, *sets) == 2
    assert "making failed (see above), so no data exist" in capsys.readouterr().err
    assert kfp.runs == {}
    copying = "shutil.copytree(f'{folder}/data/span-1', f'{folder}/made')"
    write("making.py", f"import shutil\n\ndef prepare(folder):\n    {copying}\n")
    assert strategos(kfp, workload, *sets) == 0
    assert list(kfp.runs) == ["r1"]


def test_the_command_submits_waits_and_exits_as_a_local_run(
    kfp, workload, capsys, monkeypatch
):
    """A gate that stops the run is told from a step that fails by its exit code."""
    monkeypatch.delenv("S3_ENDPOINT", raising=False)
    gate = {"Resolve": "Succeeded", "EvaluationGate": ("Failed", "Error (exit code 1)")}
    kfp.story = [{"phase": "Failed", "nodes": gate}]
    kfp.logs["w-system-container-impl-11"] = kfp.log
    assert strategos(kfp, workload, "--wait") == 3
    shown = capsys.readouterr()
    assert "compiling for kubeflow: " in shown.err
    assert "S3_ENDPOINT does not name its server" in shown.err
    assert f"run r1 submitted: {kfp.url}/#/runs/details/r1" in shown.out
    assert "flights  not blessed in 50 s  run r1, kubeflow runner" in shown.out
    assert "EvaluationGate" in shown.out and "1 of 2 bounds fails" in shown.out
    assert "main.go" not in shown.out
    assert "kubectl logs --namespace kubeflow w-system-container-impl-11" in shown.out
    tasks = kfp.runs["r1"]["pipeline_spec"]["root"]["dag"]["tasks"]
    assert "Resolve" in tasks

    kfp.logs["w-system-container-impl-11"] = PANIC
    assert strategos(kfp, workload, "--follow", "r1") == 1
    shown = capsys.readouterr().out
    assert "flights  failed in" in shown and "verdict" not in shown
    assert "KFP's launcher ended by a panic" in shown and "Run again" in shown

    kfp.logs.clear()
    assert strategos(kfp, workload, "--follow", "r1") == 3
    capsys.readouterr()
    failed = {
        "Resolve": "Succeeded",
        "Trainer": ("Failed", "OOMKilled (exit code 137)"),
    }
    kfp.story = [{"phase": "Failed", "nodes": failed}]
    assert strategos(kfp, workload, "--follow", "r1") == 1
    shown = capsys.readouterr().out
    assert "OOMKilled (exit code 137)" in shown and "Pusher" not in shown
    assert "--selector pipeline/runid=r1" in shown

    lost = {"EvaluationGate": "Succeeded", "Pusher": "Succeeded"}
    lost["ModelReport"] = ("Failed", "OOMKilled (exit code 137)")
    kfp.story = [{"phase": "Failed", "nodes": lost}]
    assert strategos(kfp, workload, "--follow", "r1") == 0
    shown = capsys.readouterr().out
    assert "flights  blessed in" in shown
    assert re.search(r"ModelReport +OOMKilled \(exit code 137\)", shown)
    lost = {**lost, "ModelReport": "Succeeded", "RunReport": lost["ModelReport"]}
    for pushed, code in (("Succeeded", 0), ("Pending", 1)):
        kfp.story = [{"phase": "Failed", "nodes": {**lost, "Pusher": pushed}}]
        assert strategos(kfp, workload, "--follow", "r1") == code
        shown = capsys.readouterr().out
        assert re.search(r"RunReport +OOMKilled \(exit code 137\)", shown)

    kfp.story = [kfp.done]
    assert strategos(kfp, workload, "--follow", "r1") == 0
    assert "cached" in capsys.readouterr().out
    assert strategos(kfp, workload, "--terminate", "r1") == 0
    assert kfp.requests()[-1].endswith("/runs/r1:terminate")
    assert strategos(kfp, workload, "--follow", "r1") == 1
    assert "interrupted terminated" in capsys.readouterr().out
    assert len(kfp.runs) == 1


def test_ctrl_c_leaves_a_run_going_and_says_how_to_follow_it(
    kfp, workload, capsys, monkeypatch
):
    kfp.runs["r1"] = {"run_id": "r1"}

    def interrupt(*_, **__):
        folder = Path(events.sink_path()).parent
        os.utime(folder, (0, 0))
        with temporary.folder():  # another run removes what killed ones have left
            assert folder.exists()
        raise KeyboardInterrupt

    ended = []
    monkeypatch.setattr(watch, "follow", interrupt)
    monkeypatch.setattr(cli, "_end_as_interrupted", lambda: ended.append(130) or 130)
    assert strategos(kfp, workload, "--follow", "r1") == 130
    shown = capsys.readouterr().err
    assert "run r1 goes on" in shown
    assert f"strategos run {workload} --runner kubeflow" in shown
    assert "--follow r1" in shown and "--terminate r1" in shown
    assert kfp.requests() == []


def test_all_problems_are_named_before_anything_is_sent(workload, capsys, kfp):
    sets = ["--set", "kubeflow.image=x", "--set", "pusher.to=/elsewhere"]
    code = cli.main(
        ["run", str(workload), "--runner", "kubeflow", "--from", "x", *sets]
    )
    shown = capsys.readouterr().err
    assert code == 2
    for key in ("pusher.to: received", "--from: ", "KF_PIPELINES_ENDPOINT"):
        assert key in shown
    assert cli.main(["run", str(workload), "--follow", "r1"]) == 2
    assert "--follow: received r1" in capsys.readouterr().err
    assert kfp.asked == []
