"""The section `trainer`: rejected values, and the settings made from valid ones."""

from __future__ import annotations

import dataclasses
import importlib.util
import json

import pytest

from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings
from strategos.pipeline.config.loading import ConfigError, effective, load

STRATEGIES = [
    *("auto", "one_device", "mirrored", "multi_worker_mirrored", "parameter_server"),
    *("tpu", "central_storage"),
]


def trainer(workload, *sets):
    return load(workload, sets=[f"trainer.{text}" for text in sets]).config.trainer


def problem(workload, *sets):
    with pytest.raises(ConfigError) as caught:
        trainer(workload, *sets)
    assert len(caught.value.problems) == 1, str(caught.value)
    return caught.value.problems[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_value_is_enough(workload, strategy):
    found = trainer(workload, f"distribution.strategy={strategy}")
    assert found.distribution.for_results()["strategy"] == strategy


@pytest.mark.parametrize(
    ("settings", "key", "expected"),
    [
        (["distribution.strategy=miror"], "distribution.strategy", "`mirrored`?"),
        (
            ["distribution={strategy: mirrored, workers: 2}"],
            "distribution.workers",
            "has no effect under `strategy: mirrored`",
        ),
        (["distribution.workers=2"], "distribution.workers", "multi_worker_mirrored"),
        (["distribution.workers=0"], "distribution.workers", "at least 1"),
        (
            ["distribution={strategy: one_device, devices: 2}"],
            "distribution.devices",
            "Use `strategy: mirrored`",
        ),
        (
            ["distribution={strategy: multi_worker_mirrored, tpu: {name: t}}"],
            "distribution.tpu",
            "Use `strategy: tpu`",
        ),
        (
            [
                "distribution.strategy=mirrored",
                "distribution.parameter_server.variable_partitioner={}",
            ],
            "distribution.parameter_server",
            "Remove it, or use `strategy: parameter_server`",
        ),
        (
            ["distribution={strategy: mirrored, launcher: external}"],
            "distribution.launcher",
            "no workers to wait for",
        ),
        (
            ["distribution.slurm={partition: gpus}"],
            "distribution.slurm",
            "use `launcher: slurm`",
        ),
        (["distribution={launcher: tfjob}"], "distribution.tfjob.image", "is missing"),
        (
            ["distribution={launcher: kubernetes}"],
            "distribution.kubernetes.image",
            "is missing",
        ),
        (
            ["distribution.tfjob={image: i}"],
            "distribution.tfjob",
            "use `launcher: tfjob`",
        ),
        (
            ["distribution={launcher: tfjob, tfjob: {image: i, folder: /mnt/a}}"],
            "distribution.tfjob",
            "on no volume",
        ),
        (
            ["distribution={launcher: tfjob, tfjob: {image: i, folder: 'ftp://h/a'}}"],
            "distribution.tfjob.folder",
            "s3://BUCKET/FOLDER",
        ),
        (
            [
                "distribution={launcher: tfjob, tfjob: {image: i}}",
                "distribution.tfjob.secrets=[{name: a, path: /a}, {name: b, path: /a}]",
            ],
            "distribution.tfjob",
            "have the path /a",
        ),
        (
            ["distribution={strategy: tpu, launcher: vertex}"],
            "distribution.vertex.machine_type",
            "`n1-standard-4` has no TPU",
        ),
        (
            ["distribution.vertex.machine_type=ct5lp-hightpu-16t"],
            "distribution.vertex",
            "no TPU of one host",
        ),
        (
            [
                "distribution={strategy: mirrored, launcher: vertex}",
                "distribution.vertex.machine_type=ct5lp-hightpu-4t",
            ],
            "distribution.vertex.machine_type",
            "`strategy: mirrored` does not use",
        ),
        (
            [
                "distribution={strategy: one_device, launcher: vertex}",
                "distribution.vertex.accelerator={type: NVIDIA_L4, count: 2}",
            ],
            "distribution.vertex.accelerator",
            "2 GPUs, of which `one_device` uses one",
        ),
        (
            [
                "distribution={strategy: mirrored, devices: 4, launcher: vertex}",
                "distribution.vertex.accelerator={type: NVIDIA_L4, count: 2}",
            ],
            "distribution.devices",
            "each task has 2 NVIDIA_L4",
        ),
        (
            ["distribution={launcher: slurm, slurm: {options: [-N2]}}"],
            "distribution.slurm.options.0",
            "--gres=gpu:2",
        ),
        (
            ["distribution={launcher: slurm, slurm: {options: [--nodes=2]}}"],
            "distribution.slurm.options.0",
            "Strategos itself sets --nodes",
        ),
        (["distribution.start_timeout=90"], "distribution.start_timeout", "duration"),
        (["distribution.bandwidth=fast"], "distribution.bandwidth", "10Gbit"),
        (["checkpoint.every=200"], "checkpoint.every", "200 steps"),
        (["checkpoint.every=0s"], "checkpoint.every", "30s"),
        (["cache_limit=much"], "cache_limit", "1GB"),
        (
            ["batch_size=7", "distribution={strategy: mirrored, devices: 8}"],
            "batch_size",
            "fewer rows than the 8 replicas",
        ),
        (
            ["batch_size=1", "distribution.strategy=multi_worker_mirrored"],
            "batch_size",
            "fewer rows than the 2 replicas",
        ),
        (
            ["callbacks.reduce_learning_rate={}", "warm_up_steps=10"],
            "callbacks.reduce_learning_rate",
            "constant learning rate",
        ),
        (["base_batch_size=32"], "base_batch_size", "`scale_learning_rate`"),
        (
            ["deterministic=true", "distribution.strategy=parameter_server"],
            "deterministic",
            "no two runs are equal",
        ),
        (["callbacks.tensorboard=yes"], "callbacks.tensorboard", "true, false or"),
        (
            ["callbacks.tensorboard={histogram: true}"],
            "callbacks.tensorboard.histogram",
            "`histograms`?",
        ),
        (
            ["callbacks.tensorboard.profile=10"],
            "callbacks.tensorboard.profile",
            "10..20",
        ),
        (
            ["callbacks.tensorboard.profile=20..10"],
            "callbacks.tensorboard.profile",
            "the range ends before it starts",
        ),
        (
            ["callbacks.early_stopping.monitor=val loss"],
            "callbacks.early_stopping.monitor",
            "val_auc",
        ),
        (
            ["callbacks.reduce_learning_rate.factor=2"],
            "callbacks.reduce_learning_rate.factor",
            "between 0 and 1",
        ),
        (
            ["distribution.stall_timeout=2s"],
            "distribution.stall_timeout",
            "15s or more",
        ),
        (["mixed_precision=fp16"], "mixed_precision", "bfloat16 or float16"),
        (["steps_per_execution=0"], "steps_per_execution", "at least 1"),
    ],
)
def test_what_cannot_work_is_rejected_by_name(workload, settings, key, expected):
    found = problem(workload, *settings)
    assert found.key == f"trainer.{key}"
    assert expected in str(found)


def test_starting_from_the_newest_pushed_model_needs_a_pusher(workload):
    with pytest.raises(ConfigError, match="without this section none is pushed"):
        load(workload, sets=["trainer.warm_start=latest", "pusher=null"])


def test_fresh_weights_now_and_then_need_a_warm_start(workload):
    latest = ("trainer.warm_start=latest", "trainer.fresh_every=3")
    assert load(workload, sets=latest).config.trainer.fresh_every == 3
    with pytest.raises(ConfigError, match="no effect without `warm_start: latest`"):
        load(workload, sets=latest[1:])


def test_warm_start_is_latest_or_a_path_from_the_file_that_names_it(workload, write):
    assert trainer(workload, "warm_start=latest").warm_start == "latest"
    overlay = write("prod/prod.yaml", "trainer: {warm_start: models/3}\n")
    found = load(workload, [overlay]).config.trainer.warm_start
    assert found == str(overlay.parent / "models" / "3")
    overlay.write_text("trainer: {warm_start: latest}\n")
    assert load(workload, [overlay]).config.trainer.warm_start == "latest"


def test_results_follow_what_is_trained_on_in_plain_numbers(workload):
    assert trainer(workload).distribution.for_results() == {"strategy": "auto"}
    found = trainer(
        workload,
        "distribution.strategy=multi_worker_mirrored",
        "distribution.communication={bytes_per_pack: 32MiB, timeout: 2m}",
        "distribution={devices: 2, shard: files}",
    )
    assert found.distribution.for_results() == {
        "strategy": "multi_worker_mirrored",
        "workers": 2,
        "devices": 2,
        "shard": "files",
        "communication": {
            "implementation": "auto",
            "bytes_per_pack": 32 << 20,
            "timeout": 120.0,
        },
    }
    found = trainer(
        workload,
        "distribution.strategy=parameter_server",
        "distribution.parameter_server.variable_partitioner.max_shards=2",
    )
    assert found.distribution.for_results() == {
        "strategy": "parameter_server",
        "workers": 2,
        "parameter_servers": 1,
        "parameter_server": {
            "variable_partitioner": {
                "kind": "min_size",
                "min_shard_bytes": 256 << 10,
                "max_shards": 2,
            }
        },
    }


def test_results_do_not_follow_how_training_is_run(workload):
    plain = load(workload).config
    sets = [
        "trainer.distribution.launcher=external",
        "trainer.distribution.start_timeout=5m",
        "trainer.distribution.stall_timeout=1h",
        "trainer.distribution.max_restarts=0",
        "trainer.distribution.bandwidth=10Gbit",
        "trainer.checkpoint={every: 1 step, keep: 9}",
    ]
    other = load(workload, sets=sets).config
    assert other.runtime_parameters() == plain.runtime_parameters()
    assert other.trainer.settings() == plain.trainer.settings()
    assert plain.trainer.operation() == Operation()
    assert other.trainer.operation() == Operation(
        launcher="external",
        start_timeout=300.0,
        stall_timeout=3600.0,
        max_restarts=0,
        checkpoint_every="1 steps",
        checkpoint_keep=9,
    )
    assert other.trainer.distribution.bytes_per_second == 1.25e9
    job = "{partition: p, time_limit: 2h, options: [--exclusive]}"
    sets = [f"trainer.distribution={{launcher: slurm, slurm: {job}}}"]
    third = load(workload, sets=sets).config
    assert third.trainer.operation().job == {
        "partition": "p",
        "account": None,
        "time_limit": 7200.0,
        "pending_timeout": 86400.0,
        "options": ["--exclusive"],
    }
    assert third.trainer.settings() == plain.trainer.settings()


def test_tfjob_knows_the_folder_that_the_image_contains(workload):
    secret = "{name: s, env: {A: a}}"
    job = f"{{image: i, folder: 's3://b/jobs', secrets: [{secret}]}}"
    sets = [f"trainer.distribution={{launcher: tfjob, tfjob: {job}}}"]
    plain = load(workload, sets=sets).config.operation().job
    assert plain["folder"] == "s3://b/jobs" and plain["context"] is None
    assert plain["secrets"] == [{"name": "s", "env": {"A": "a"}, "path": None}]
    known = load(workload, sets=[*sets, "kubeflow={image: i}"]).config.operation().job
    assert known["context"] == str(workload.parent)
    assert known["workload"] == "/workload"


def test_tfjob_has_its_files_in_a_root_that_tensorflow_cannot_open(
    workload, monkeypatch
):
    def folder(root, job="image: i"):
        metadata = "mysql://u@h/d"
        of_run = f"run={{root: '{root}', metadata: '{metadata}'}}"
        sets = [f"trainer.distribution={{launcher: tfjob, tfjob: {{{job}}}}}", of_run]
        config = load(workload, sets=sets).config
        return config.name, config.operation().job["folder"]

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    name, found = folder("s3://b/root")
    assert found == f"s3://b/root/{name}/Trainer/staged"
    assert folder("s3://b/root", "image: i, folder: 's3://b/a'")[1] == "s3://b/a"
    assert folder("gs://b/root")[1] is None


def test_settings_are_what_the_trainer_runs_with(workload):
    found = trainer(
        workload,
        "callbacks.early_stopping.patience=1",
        "callbacks.tensorboard={histograms: true, profile: 10..20}",
        "cache_limit=1.5KiB",
        "scale_learning_rate=linear",
        "base_batch_size=32",
        "warm_up_steps=10",
        "mixed_precision=bfloat16",
        "jit_compile=true",
        "steps_per_execution=4",
        "deterministic=true",
        "last_batch=drop",
    ).settings()
    stopping = {"monitor": "val_loss", "patience": 1, "mode": "auto"}
    assert found == Settings(
        callbacks={
            "early_stopping": stopping,
            "best_checkpoint": None,
            "reduce_learning_rate": None,
            "tensorboard": {"histograms": True, "profile": [10, 20]},
            "csv": False,
            "terminate_on_nan": True,
        },
        last_batch="drop",
        scale_learning_rate="linear",
        base_batch_size=32,
        warm_up_steps=10,
        mixed_precision="bfloat16",
        jit_compile=True,
        steps_per_execution=4,
        deterministic=True,
        cache_limit=1536,
    )


def test_defaults_of_the_yaml_are_those_of_the_trainer(workload):
    found = trainer(workload)
    settings = found.settings()
    assert settings == dataclasses.replace(Settings(), callbacks=settings.callbacks)
    assert found.operation() == Operation()


@pytest.mark.parametrize("value", ["true", "false", "{histograms: true}"])
def test_tensorboard_reads_back_as_it_was_written(workload, write, value):
    loaded = load(workload, sets=[f"trainer.callbacks.tensorboard={value}"])
    again = load(write("again.yaml", effective(loaded)))
    assert again.config.trainer == loaded.config.trainer
    switch = loaded.config.trainer.settings().callbacks["tensorboard"]
    assert json.dumps(switch).startswith(value[:4].replace("{his", '{"hi'))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("4096", 4096), ("1GB", 10**9), ("1.5 MiB", 3 << 19), ("2kb", None)],
)
def test_sizes(workload, text, expected):
    if expected is None:
        assert "1GB" in str(problem(workload, f"cache_limit={text}"))
    else:
        found = trainer(workload, f"cache_limit={text}").settings()
        assert found.cache_limit == expected
