"""The engine of a run: rejected options, and a runner that does not answer."""

from __future__ import annotations

import socket

import pytest

from strategos.pipeline.checks import engine
from strategos.pipeline.config.loading import ConfigError, load

RUNNER, OPTIONS = "run.engine.runner", "run.engine.options"
ENDPOINT = f"{OPTIONS}.job_endpoint"
DATAFLOW = [
    f"{RUNNER}=dataflow",
    f"{OPTIONS}.project=flights-17",
    f"{OPTIONS}.region=europe-west4",
    f"{OPTIONS}.temp_location=gs://a-bucket/temp",
    f"{OPTIONS}.image=registry.example.com/flights:1",
]


def found(workload, *sets: str, **where) -> list[str]:
    config = load(workload, sets=sets).config
    return [str(problem) for problem in engine.check(config, **where)]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([f"{RUNNER}=portable"], f"{ENDPOINT}: is required under `runner: portable`"),
        ([f"{ENDPOINT}=a:1"], f"{ENDPOINT}: has no effect under `runner: direct`"),
        ([f"{RUNNER}=portable", f"{ENDPOINT}=a"], f'{ENDPOINT}: received "a" (text)'),
        ([f"{RUNNER}=flnk"], f'{RUNNER}: received "flnk" (text)'),
        ([f"{RUNNER}=spark"], f"{ENDPOINT}: is required under `runner: spark`"),
        ([f"{ENDPOINT}=a:1"], "use `runner: portable` or `runner: spark`"),
        ([f"{RUNNER}=dataflow"], "options.image: is required under `runner: dataflow`"),
        (DATAFLOW[:-1], "options.image: is required under `runner: dataflow`"),
        ([*DATAFLOW[1:]], "options.project: has no effect under `runner: direct`"),
        ([*DATAFLOW, f"{OPTIONS}.project=17"], "the ID of a Google Cloud project"),
        ([*DATAFLOW, f"{OPTIONS}.region=Belgium"], "such as europe-west4"),
        ([*DATAFLOW, f"{OPTIONS}.temp_location=/tmp/a"], "Allowed: gs://BUCKET/FOLDER"),
        ([*DATAFLOW, f"{OPTIONS}.temp_location=gs://b"], "Allowed: gs://BUCKET/FOLDER"),
        ([*DATAFLOW, f"{OPTIONS}.image=flights"], "Allowed: REGISTRY/IMAGE:TAG"),
        (["run.engine.options.endpoint=a:1"], "unknown key"),
        (["run.engine.options.master=a:1"], "Remove it, or use `runner: flink`"),
        ([f"{RUNNER}=flink", f"{ENDPOINT}=a:1"], "no effect under `runner: flink`"),
        (
            [
                f"{RUNNER}=flink",
                "run.engine.options={master: 'a:1', local_cluster: {taskmanagers: 1}}",
            ],
            "run.engine.options.local_cluster: has no effect beside `master`",
        ),
    ],
)
def test_options_that_do_not_fit_the_runner_are_rejected(workload, sets, message):
    with pytest.raises(ConfigError, match="run.engine") as error:
        load(workload, sets=sets)
    assert message in str(error.value)


def test_dataflow_needs_data_and_root_that_its_workers_see(workload):
    examples, root = found(workload, *DATAFLOW)
    assert "data.examples: received " in examples and "run.root: received " in root
    assert "workers of `run.engine.runner: dataflow` cannot see it" in examples
    seen = ["data.examples=gs://a/b/*.csv", "run.root=gs://a/root"]
    seen += ["run.metadata=mysql://user@host:1/database"]
    assert found(workload, *DATAFLOW, *seen) == []


@pytest.mark.parametrize("runner", ["portable", "spark"])
def test_job_server_must_answer_before_data_are_read(workload, runner):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        sets = [f"{RUNNER}={runner}", f"{ENDPOINT}={address}"]
        assert found(workload, *sets) == []
    (problem,) = found(workload, *sets)
    assert f"{ENDPOINT}: received {address}; no job server listens" in problem
    assert "Connection refused" in problem


@pytest.fixture
def portable():
    """The settings of a job server that answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        yield [
            *(f"{RUNNER}=portable", f"{ENDPOINT}={address}"),
            "run.metadata=mysql://user@host:1/database",
        ]


def test_root_may_be_where_workers_open_it_by_themselves(workload, portable):
    assert found(workload, *portable, "run.root=gs://a/b") == []
    assert found(workload, *portable, "run.root=s3://a/b") == []


def test_what_flink_needs_is_named_with_the_setting(workload, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    (problem,) = found(workload, f"{RUNNER}=flink")
    assert f"{RUNNER}: Flink needs java, which is not in JAVA_HOME=/nowhere" in problem


def compiled(workload, root, *sets, target="kubeflow"):
    sections = {
        "kubeflow": f"kubeflow={{image: i, root: '{root}'}}",
        "vertex": f"vertex={{image: i, project: p, root: '{root}'}}",
    }
    return found(workload, sections[target], *sets, target=target)


def test_compiled_pipeline_asks_nothing_of_the_job_server(workload):
    sets = [f"{RUNNER}=portable", f"{ENDPOINT}=jobs.beam.svc:8099"]
    assert compiled(workload, "gs://a/b", *sets) == []
    assert compiled(workload, "gs://a/b", *sets, target="vertex") == []
    seen = ["data.examples=gs://a/b/*.csv", *DATAFLOW]
    assert compiled(workload, "gs://a/b", *seen, target="vertex") == []


@pytest.mark.parametrize("root", ["gs://a/b", "minio://mlpipeline/v2", "s3://a/b"])
def test_root_of_a_compiled_pipeline_is_one_that_workers_open(workload, root):
    sets = [f"{RUNNER}=portable", f"{ENDPOINT}=jobs.beam.svc:8099"]
    assert compiled(workload, root, *sets) == []


def test_flink_is_reached_from_a_step_by_its_job_server(workload):
    (java,) = compiled(workload, "gs://a/b", f"{RUNNER}=flink")
    assert f"{RUNNER}: received flink; Flink needs Java" in java
    assert "Use `portable` with the job server of a Flink cluster." in java
