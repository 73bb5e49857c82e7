"""What the Trainer is given of a valid section `trainer`."""

from __future__ import annotations

import dataclasses
import json

import pytest

from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings
from strategos.pipeline.config.loading import ConfigError, effective, load


def test_results_follow_what_is_trained_on_in_plain_numbers(trainer):
    assert trainer().distribution.for_results() == {"strategy": "auto"}
    found = trainer(
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
        "trainer.debug={check_numerics: true, dump: /d}",
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
        check_numerics=True,
        dump="/d",
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


def test_pods_have_their_files_in_a_root_in_an_object_store(workload):
    def folder(root, job="image: i"):
        metadata = "mysql://u@h/d"
        of_run = f"run={{root: '{root}', metadata: '{metadata}'}}"
        sets = [f"trainer.distribution={{launcher: tfjob, tfjob: {{{job}}}}}", of_run]
        config = load(workload, sets=sets).config
        return config.name, config.operation().job["folder"]

    name, found = folder("s3://b/root")
    assert found == f"s3://b/root/{name}/Trainer/staged"
    assert folder("s3://b/root", "image: i, folder: 's3://b/a'")[1] == "s3://b/a"
    assert folder("gs://b/root")[1] == f"gs://b/root/{name}/Trainer/staged"


def test_settings_are_what_the_trainer_runs_with(trainer):
    found = trainer(
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


def test_defaults_of_the_yaml_are_those_of_the_trainer(trainer):
    found = trainer()
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
def test_sizes(trainer, problem, text, expected):
    if expected is None:
        assert "1GB" in str(problem(f"cache_limit={text}"))
    else:
        found = trainer(f"cache_limit={text}").settings()
        assert found.cache_limit == expected


def test_epochs_are_the_sum_of_the_phases(trainer):
    found = trainer("phases={a: {epochs: 2}, b: {epochs: 3, trainable: [x, y_*]}}")
    assert found.epochs == 5
    assert [each["name"] for each in found.settings().phases] == ["a", "b"]
    assert found.settings().phases[1]["trainable"] == ["x", "y_*"]


def test_swa_may_start_after_more_evaluations_than_epochs(trainer):
    found = trainer(
        *("epochs=1", "evaluate_every=5 steps", "optimizer.swa.from_epoch=4"),
        *("callbacks.early_stopping=null", "callbacks.best_checkpoint=null"),
    )
    assert found.settings().evaluate_every == 5


ELASTIC = "distribution={strategy: multi_worker_mirrored, workers: 3, min_workers: 2}"


def test_min_workers_is_no_part_of_the_result(trainer):
    elastic = trainer(ELASTIC)
    assert elastic.operation().min_workers == 2
    plain = trainer("distribution={strategy: multi_worker_mirrored, workers: 3}")
    assert elastic.distribution.for_results() == plain.distribution.for_results()
    assert elastic.settings() == plain.settings()


@pytest.mark.parametrize("launcher", ["kubernetes", "tfjob"])
def test_jobs_of_kubernetes_may_lose_workers(trainer, launcher):
    job = f"distribution.{launcher}.image=i"
    found = trainer(ELASTIC, f"distribution.launcher={launcher}", job)
    assert found.operation().min_workers == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["min_workers=4"], "min_workers: received 4; the gang has only 3 workers"),
        (["strategy=mirrored", "workers=null"], "has no effect under `strategy: mirr"),
        (["strategy=parameter_server"], "has no effect under `strategy: parameter_s"),
        (
            ["shard=files"],
            "min_workers: has no effect under `shard: files`",
        ),
        (["max_restarts=0"], "has no effect under `max_restarts: 0`"),
        (
            ["launcher=slurm"],
            "`launcher: slurm` cannot lose a worker: a job of Slurm that loses a node "
            "ends, and the next one needs as many\n    Remove it, or use `launcher: "
            "local`, `launcher: external`, `launcher: kubernetes` or `launcher: tfjob`",
        ),
        (
            ["launcher=vertex", "vertex.image=i"],
            "`launcher: vertex` cannot lose a worker: a job of Vertex AI",
        ),
        (
            ["launcher=kubernetes", "kubernetes.image=i", "min_workers=4"],
            "min_workers: received 4; the gang has only 3 workers",
        ),
        (
            ["launcher=tfjob", "tfjob.image=i", "shard=files"],
            "min_workers: has no effect under `shard: files`",
        ),
    ],
)
def test_min_workers_that_cannot_work_is_rejected(problem, changes, message):
    sets = [ELASTIC, *(f"distribution.{text}" for text in changes)]
    assert message in str(problem(*sets))


def test_a_batch_that_a_smaller_gang_cannot_divide_is_rejected(problem, trainer):
    several = (ELASTIC, "steps_per_execution=5")
    trainer(*several, "batch_size=12")
    trainer(ELASTIC, "batch_size=7")  # rows are weighted
    text = str(problem(*several, "batch_size=9"))
    assert "batch_size: received 9; the batch cannot be divided evenly among 2 " in text
    assert "Choose a multiple of 6, which 2 or 3 replicas divide evenly" in text


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ("{debug: {dump: s3://b/d}}", "a folder on a local disk"),
        ("{debug: {dump: /d}, jit_compile: true}", "XLA compiles"),
        (
            "{debug: {dump: /d}, distribution: {strategy: parameter_server}}",
            "other machines",
        ),
    ],
)
def test_a_dump_that_cannot_be_is_rejected(workload, settings, cause):
    sets = [f"trainer={settings[:-1]}, module: model}}"]
    with pytest.raises(ConfigError, match="trainer.debug.dump") as caught:
        load(workload, sets=sets)
    assert cause in str(caught.value)
