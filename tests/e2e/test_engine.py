"""Whole pipelines whose data are worked on by a Beam runner: Flink, and Beam's own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from strategos.components.errors import UserError
from strategos.components.shards.flink import jars, java

pytestmark = pytest.mark.engine

DATA = {"ExampleGen": "examples", "StatisticsGen": "statistics"}
DATA["Transform"] = "transformed_examples"
STEPS = ("Resolve", *DATA, "ImportSchemaGen", "Trainer", "BaselineModel", "Evaluator")


@pytest.fixture(scope="module")
def installed():
    try:
        java.program()
        jars.find()
    except UserError as error:
        pytest.skip(error.headline)


@pytest.fixture(scope="module")
def threads(flights):
    """The run of the flights in threads."""
    flights.run()
    return flights


def test_run_on_flink_has_the_metrics_of_the_run_in_threads(
    installed, threads, copy_flights, tmp_path
):
    flink = copy_flights(tmp_path)
    done = flink.run("--set", "run.engine.runner=flink", warm=False)
    flink.wait_until_nothing_is_left(seconds=30)
    ours, theirs = flink.last_run(), threads.last_run()
    assert ours["outcome"] == "blessed" and ours["nodes"][0]["rows"] == flink.rows
    assert ours["metrics"] == pytest.approx(theirs["metrics"], abs=1e-6)
    assert f"pushed     {flink.folder}" in done.stdout
    flink.run("--set", "run.engine.runner=flink")  # starts no cluster
    assert set(flink.states().values()) == {"cached"}
    assert len(list(flink.folder.glob("runs/.strategos/runs/*/flink"))) == 1


@pytest.fixture(scope="module", params=["s3", "gs"])
def object_store(request):
    return request.param


@pytest.fixture
def job_server(bucket, tmp_path):
    """The address of Beam's job server in Python."""
    program = Path(__file__).parents[1] / "lab" / "beam_job_server.py"
    with (tmp_path / "server.log").open("wb") as log:
        words = [sys.executable, "-W", "ignore", str(program), str(tmp_path)]
        server = subprocess.Popen(words, stdout=log, stderr=log)
    port = tmp_path / "port"
    while not port.exists():
        assert server.poll() is None, (tmp_path / "server.log").read_text()
        time.sleep(0.1)
    yield f"127.0.0.1:{port.read_text()}"
    server.terminate()
    server.wait()


def local_files(folder):
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def objects(client, below):
    found = client.list_objects_v2(Bucket="bucket", Prefix=below)["Contents"]
    bodies = {
        each["Key"]: client.get_object(Bucket="bucket", Key=each["Key"])["Body"]
        for each in found
    }
    return {key.removeprefix(below): body.read() for key, body in bodies.items()}


def test_compiled_pipeline_sends_its_data_to_a_job_server(
    threads, kfp_launcher, bucket, bucket_client, job_server, tmp_path
):
    root = f"{bucket}/kfp".replace("s3://", "minio://")  # as the launcher has it
    file, overlay = tmp_path / "pipeline.yaml", tmp_path / "cluster.yaml"
    checkout = threads.folder.parents[1]
    section = {"image": "registry.example.com/a:1", "context": str(checkout)}
    options = {"job_endpoint": job_server}
    overlay.write_text(
        json.dumps(
            {
                "kubeflow": {**section, "root": root},
                "pusher": {"to": f"{bucket}/serving"},
                "run": {"engine": {"runner": "portable", "options": options}},
            }
        )
    )
    words = ("--target", "kubeflow", "--overlay", str(overlay), "-o", str(file))
    threads.strategos("compile", str(threads.yaml), *threads.sets(), *words)
    spec = next(yaml.safe_load_all(file.read_text()))
    place = tmp_path / "steps"
    launcher = kfp_launcher(spec, place, threads.warm, checkout, s3=bucket_client)
    launcher.run(*STEPS)
    for node, output in DATA.items():
        (here,) = threads.folder.glob(f"runs/*/{node}/{output}/*")
        uri = launcher.artifacts[node, output]["uri"]
        there = uri.removeprefix(root.removesuffix("kfp"))
        found = objects(bucket_client, f"{there}/")
        assert found == local_files(here) and len(found) > 1
        if output != "statistics":  # workers write examples to the store themselves
            assert not list(place.glob(f"containers/{node}-1/*/{there}"))
    evaluation = launcher.artifacts["Evaluator", "evaluation"]["uri"]
    key = f"{evaluation.removeprefix(root.removesuffix('kfp'))}/summary.json"
    summary = bucket_client.get_object(Bucket="bucket", Key=key)["Body"].read()
    assert json.loads(summary)["overall"] == threads.last_run()["metrics"]
    # Of two splits each; other work has one shard, and sends no job.
    assert (tmp_path / "server.log").read_text().count("Completed job") == 2
