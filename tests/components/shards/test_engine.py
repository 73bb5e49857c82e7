"""The engine of a run: how it reaches executors, and the cores that it may use."""

from __future__ import annotations

import os
import socket

import apache_beam as beam
import pytest

from strategos.components.errors import UserError
from strategos.components.shards.beam_engine import ENGINES
from strategos.components.shards.beam_runners import make_pipeline
from strategos.components.shards.engine import Engine, available_cores
from strategos.pipeline.config import run


def test_engine_reaches_another_process():
    engine = Engine(workers=3)
    assert Engine.from_environment(engine.to_environment()) == engine
    assert Engine.from_environment({}) == Engine()
    assert Engine().threads == available_cores()


def test_jobs_hold_no_credentials_and_no_address_of_an_object_store():
    """A job's options are shown in the user interface of its runner."""
    from strategos.components.shards import beam_runners

    secret = {"AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_ACCESS_KEY_ID": "anyone"}
    environ = {**secret, "S3_ENDPOINT": "http://store:1", "KERAS_BACKEND": "tensorflow"}
    options = " ".join(beam_runners._portable(environ))
    assert "KERAS_BACKEND" in options
    assert not [value for value in (*secret.values(), "store") if value in options]


@pytest.mark.parametrize("runner", ["portable", "spark"])
def test_job_server_that_is_gone_is_not_waited_for(runner):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(UserError, match=f"{address}; no job server listens"):
        make_pipeline(Engine(runner, job_endpoint=address))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with 64 cores; control groups as tests write them."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))

    def make(groups: str, files: dict[str, str]):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
        for name, text in files.items():
            path = tmp_path / "sys/fs/cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


V1 = "4:memory:/a\n3:cpu,cpuacct:/a/b\n1:name=systemd:/a\n"


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/\n", {}, 64),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),  # a container
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "250000 50000"}, 5),
        ("0::/a\n", {"a/cpu.max": "1000 100000\n"}, 1),
        (V1, {"cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/b/cpu.cfs_period_us": "9"}, 64),
        (
            V1,
            {"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"},
            3,
        ),
        ("0::/../outside\n", {"cpu.max": "400000 100000"}, 4),
    ],
)
def test_cores_follow_the_quota_of_the_control_groups(machine, groups, files, cores):
    assert available_cores(machine(groups, files)) == cores


def test_cores_follow_the_affinity(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3})
    assert available_cores(tmp_path) == 2


COUNTED = """
from pydantic import BaseModel
from strategos import BeamEngine, UserError

class Settings(BaseModel, extra="forbid"):
    bundles: int = 2

class Counted(BeamEngine):
    settings = Settings

    def check(self, engine):
        if engine.settings["bundles"] > 9:
            raise UserError("at most 9 bundles")

    def make_pipeline(self, engine):
        import apache_beam as beam
        runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
        made = beam.Pipeline(argv=[f"--runner={runner}"])
        made.bundles = engine.settings["bundles"]
        return made
"""


def test_an_engine_may_be_a_plug_in(install):
    install("counted", COUNTED, "[strategos.engines]\ncounted = counted:Counted\n")
    section = run.Engine(runner="counted", settings={"bundles": 10})
    with pytest.raises(UserError, match="at most 9 bundles"):
        ENGINES["counted"].check(section.to_engine())
    engine = run.Engine(runner="counted").to_engine()
    passed = Engine.from_environment(engine.to_environment())
    found = []
    with make_pipeline(passed) as pipeline:
        assert pipeline.bundles == 2
        _ = pipeline | beam.Create([1, 2]) | beam.combiners.Count.Globally()
        found.append(type(pipeline.runner).__name__)
    assert found == ["FnApiRunner"]
