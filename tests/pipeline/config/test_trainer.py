"""The section `trainer`: rejected values, and the settings made from valid ones."""

from __future__ import annotations

import pytest

from strategos.pipeline.config.loading import ConfigError, load

STRATEGIES = [
    *("auto", "one_device", "mirrored", "multi_worker_mirrored", "parameter_server"),
    *("tpu", "central_storage"),
]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_value_is_enough(trainer, strategy):
    found = trainer(f"distribution.strategy={strategy}")
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
        (
            [
                "distribution={strategy: mirrored, devices: 2}",
                *("batch_size=7", "accumulate_steps=4"),
            ],
            "accumulate_steps",
            "more parts than the 3 rows that a replica has of a batch",
        ),
        (["optimizer.clip={norm: 1, value: 2}"], "optimizer.clip", "norm, value"),
        (["optimizer.clip.norm=0"], "optimizer.clip.norm", "a number above 0"),
        (["evaluate_every=500"], "evaluate_every", "500 steps"),
        (["evaluate_every=0 steps"], "evaluate_every", "500 steps"),
        (
            ["phases.head={epochs: 1}", "evaluate_every=5 steps"],
            "evaluate_every",
            "`phases`, whose epochs are passes over the rows",
        ),
        (["optimizer.ema=1"], "optimizer.ema", "a number between 0 and 1"),
        (
            ["epochs=3", "optimizer.swa.from_epoch=4"],
            "optimizer.swa.from_epoch",
            "training has 3 epochs",
        ),
        (
            ["optimizer={ema: 0.9, swa: {from_epoch: 2}}"],
            "optimizer.swa",
            "`ema` averages the weights, too",
        ),
        (
            [
                *("optimizer.swa.from_epoch=2", "phases.one={epochs: 1}"),
                "phases.two={epochs: 2, early_stopping: {}}",
            ],
            "optimizer.swa",
            "(of `callbacks`, or of the last phase) the weights of the best epoch",
        ),
        (
            ["optimizer.swa.from_epoch=2", "callbacks.early_stopping={}"],
            "optimizer.swa",
            "the weights of the best epoch",
        ),
        (["distribution.workers=0"], "distribution.workers", "at least 1"),
        (["phases.head.epochs=0"], "phases.head.epochs", "at least 1"),
        (["phases.head={epochs: 1}", "epochs=4"], "epochs", "have 1 epochs together"),
        (
            ["phases.head={epochs: 1, trainable: none}"],
            "phases.head.trainable",
            "`base: NAME`",
        ),
        (["phases.head={epochs: 1, base: resnet50}"], "phases.head.base", "no effect"),
        (["phases.head={epochs: 1, trainable: 0}"], "phases.head.trainable", "number"),
        (
            ["phases.head={epochs: 1}", "distribution.strategy=parameter_server"],
            "phases",
            "each has its own",
        ),
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
        (["keras=4"], "keras", "3"),
        (["steps_per_execution=0"], "steps_per_execution", "at least 1"),
    ],
)
def test_what_cannot_work_is_rejected_by_name(problem, settings, key, expected):
    found = problem(*settings)
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


def test_warm_start_is_latest_or_a_path_from_the_file_that_names_it(
    workload, trainer, write
):
    assert trainer("warm_start=latest").warm_start == "latest"
    overlay = write("prod/prod.yaml", "trainer: {warm_start: models/3}\n")
    found = load(workload, [overlay]).config.trainer.warm_start
    assert found == str(overlay.parent / "models" / "3")
    overlay.write_text("trainer: {warm_start: latest}\n")
    assert load(workload, [overlay]).config.trainer.warm_start == "latest"
