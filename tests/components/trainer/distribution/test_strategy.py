"""Which strategy trains, and why."""

from __future__ import annotations

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.distribution import batch_checks, strategy
from strategos.components.trainer.distribution.environment import ClusterSpec, Task
from strategos.components.trainer.spec import Settings

ALONE = ClusterSpec()
WORKERS = ClusterSpec({"chief": ("a:1",), "worker": ("b:1",)}, Task("worker"))
WITH_PS = ClusterSpec(
    {"chief": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1",)}, Task("chief")
)


def gpus(number, **others):
    return ClusterSpec(gpus=number, **others)


@pytest.mark.parametrize(
    "cluster, name, reason",
    [
        (ALONE, "one_device", "no GPU is visible"),
        (gpus(1), "one_device", "1 GPU is visible"),
        (gpus(4), "mirrored", "4 GPUs are visible"),
        (
            WORKERS,
            "multi_worker_mirrored",
            "the cluster has several workers; 2 workers",
        ),
        (WITH_PS, "parameter_server", "the cluster has parameter servers; 2 workers"),
        (gpus(4, tpu="my-tpu"), "tpu", "there is a TPU, my-tpu"),
        (
            ClusterSpec({"worker": ("a:1",)}, Task("worker")),
            "one_device",
            "no GPU is visible",
        ),
    ],
)
def test_auto_follows_the_environment(cluster, name, reason):
    choice = strategy.choose({"strategy": "auto"}, cluster)
    assert choice.name == name
    assert choice.reason.startswith(reason)
    assert strategy.choose({}, cluster) == choice


def test_auto_takes_as_many_devices_as_are_asked_for():
    assert strategy.choose({"devices": 2}, ALONE).name == "mirrored"
    assert strategy.choose({"devices": 1}, gpus(4)).name == "one_device"
    named = {"tpu": {"name": "my-tpu"}}
    assert strategy.choose(named, ALONE).name == "tpu"


@pytest.mark.parametrize(
    "distribution, cluster, workers, devices, replicas",
    [
        ({"strategy": "one_device"}, gpus(4), 1, 1, 1),
        ({"strategy": "mirrored"}, gpus(4), 1, 4, 4),
        ({"strategy": "mirrored", "devices": 3}, gpus(4), 1, 3, 3),
        ({"strategy": "mirrored", "devices": 2}, ALONE, 1, 2, 2),
        ({"strategy": "central_storage", "devices": 2}, ALONE, 1, 2, 2),
        ({"strategy": "multi_worker_mirrored"}, ALONE, 2, 1, 2),
        ({"strategy": "multi_worker_mirrored", "workers": 3}, ALONE, 3, 1, 3),
        ({"strategy": "multi_worker_mirrored", "workers": 2}, gpus(5), 2, 2, 4),
        ({"strategy": "multi_worker_mirrored"}, WORKERS, 2, 1, 2),
        ({"strategy": "parameter_server", "workers": 3}, ALONE, 3, 1, 1),
        ({"strategy": "parameter_server"}, WITH_PS, 2, 1, 1),
        ({"strategy": "parameter_server", "workers": 2}, gpus(5), 2, 1, 1),
    ],
)
def test_replicas_are_known_without_tensorflow(
    distribution, cluster, workers, devices, replicas
):
    choice = strategy.choose(distribution, cluster)
    assert (choice.workers, choice.devices) == (workers, devices)
    assert choice.replicas == replicas
    assert choice.reason.startswith("asked for")


def test_only_the_tpu_knows_its_replicas():
    choice = strategy.choose({"strategy": "tpu"}, ClusterSpec(tpu="my-tpu"))
    assert (choice.replicas, choice.kind) == (None, "TPU")


@pytest.mark.parametrize("name", ["mirrored", "central_storage"])
def test_one_replica_is_allowed_with_a_remark(name):
    choice = strategy.choose({"strategy": name}, ALONE)
    assert choice.replicas == 1
    assert "a single replica is no faster than one_device" in choice.reason


def test_idle_gpus_are_reported():
    choice = strategy.choose({"strategy": "mirrored", "devices": 2}, gpus(4))
    assert choice.reason == "asked for; 4 GPUs are visible, 2 of them in use"


@pytest.mark.parametrize(
    "distribution, cluster, says",
    [
        (
            {"strategy": "magic"},
            ALONE,
            "strategy: received 'magic'\n    Allowed: auto, one",
        ),
        ({"strategy": "tpu"}, ALONE, "no TPU is named: .*TPU_NAME.*\n    Name it"),
        (
            {"strategy": "multi_worker_mirrored"},
            ClusterSpec(tpu="my-tpu"),
            "cannot train on a TPU, and .* names one: my-tpu\n    Use `tpu`",
        ),
        (
            {"strategy": "tpu"},
            ClusterSpec(WORKERS.addresses, Task("worker"), tpu="my-tpu"),
            "'tpu' trains in one process, but TF_CONFIG names 2: chief-0, worker-0",
        ),
        ({"strategy": "mirrored"}, WORKERS, "'mirrored' trains in one process"),
        ({"strategy": "one_device"}, WITH_PS, "TF_CONFIG names 4: chief-0, ps-0"),
        (
            {"strategy": "mirrored", "workers": 2},
            ALONE,
            "workers: received 2; 'mirrored' trains in one process",
        ),
        ({"strategy": "parameter_server"}, WORKERS, "has no `ps`, which holds the var"),
        (
            {"strategy": "parameter_server"},
            ClusterSpec({"worker": ("a:1",), "ps": ("b:1",)}, Task("ps")),
            "has no `chief`, which hands out the steps; it has ps-0, worker-0",
        ),
        ({"strategy": "multi_worker_mirrored"}, WITH_PS, "has parameter servers"),
        ({"strategy": "one_device", "devices": 2}, ALONE, "'one_device' trains on one"),
        (
            {"strategy": "mirrored", "devices": 8},
            gpus(4),
            "devices: 8 GPUs would be needed, but 4 GPUs are visible",
        ),
        ({"devices": 8}, gpus(1), "devices: 8 GPUs would be needed, but 1 GPU is"),
        (
            {"strategy": "parameter_server", "devices": 2},
            gpus(8),
            "devices: received 2; each worker of 'parameter_server' computes on",
        ),
        (
            {"strategy": "mirrored", "devices": 100},
            ALONE,
            "received 100; no GPU is visible, and a CPU stands in for at most 16",
        ),
        (
            {"strategy": "multi_worker_mirrored", "devices": 2},
            ALONE,
            "each worker of 'multi_worker_mirrored' has one device, its CPU",
        ),
        (
            {"strategy": "multi_worker_mirrored", "workers": 4},
            gpus(2),
            r"4 GPUs would be needed \(4 workers with 1 each\), but 2 GPUs",
        ),
        (
            {"strategy": "multi_worker_mirrored", "devices": 2},
            gpus(3),
            r"4 GPUs would be needed \(2 workers with 2 each\), but 3 GPUs",
        ),
        (
            {
                "strategy": "multi_worker_mirrored",
                "communication": {"implementation": "nccl"},
            },
            ALONE,
            "communication.implementation: received 'nccl'; NCCL needs GPUs",
        ),
        (
            {"strategy": "mirrored", "devices": 2, "cross_device_ops": "nccl"},
            ALONE,
            "cross_device_ops: received 'nccl'; NCCL needs GPUs, and no GPU",
        ),
    ],
)
def test_impossible_settings_are_rejected_by_name(distribution, cluster, says):
    with pytest.raises(UserError, match=says) as caught:
        strategy.choose(distribution, cluster)
    assert str(caught.value).startswith("trainer.distribution.")


@pytest.mark.parametrize(
    "distribution, settings, says",
    [
        (
            {"strategy": "mirrored", "devices": 2},
            Settings(jit_compile=True),
            "jit_compile: XLA cannot exchange gradients between CPUs",
        ),
        (
            {"strategy": "multi_worker_mirrored"},
            Settings(jit_compile=True),
            "jit_compile: XLA cannot exchange",
        ),
        (
            {"strategy": "parameter_server"},
            Settings(jit_compile=True),
            "jit_compile: XLA cannot read variables of another process",
        ),
        (
            {"strategy": "parameter_server"},
            Settings(accumulate_steps=2),
            "accumulate_steps: replicas that take a step each for itself",
        ),
        (
            {"strategy": "central_storage"},
            Settings(accumulate_steps=2),
            "accumulate_steps: central storage exchanges metrics",
        ),
        (
            {"strategy": "parameter_server"},
            Settings(deterministic=True),
            "deterministic: parameter servers take gradients in the order",
        ),
        (
            {"strategy": "parameter_server"},
            Settings(mixed_precision="bfloat16"),
            "mixed_precision: variables on parameter servers are not cast",
        ),
        (
            {"strategy": "tpu", "tpu": {"name": "my-tpu"}},
            Settings(mixed_precision="float16"),
            "mixed_precision: a TPU computes in bfloat16",
        ),
    ],
)
def test_settings_that_the_strategy_cannot_do_are_rejected(
    distribution, settings, says
):
    strategy.choose(distribution, ALONE)
    with pytest.raises(UserError, match=says):
        strategy.choose(distribution, ALONE, settings)


@pytest.mark.parametrize("devices", [1, 2])
def test_xla_is_left_to_strategies_that_can(devices):
    distribution = {"strategy": "central_storage", "devices": devices}
    strategy.choose(distribution, ALONE, Settings(jit_compile=True))
    strategy.choose({"strategy": "mirrored"}, ALONE, Settings(jit_compile=True))


def test_the_coordinator_of_workers_with_gpus_needs_none():
    distribution = {"strategy": "parameter_server", "devices": 2}
    assert strategy.choose(distribution, WITH_PS).reason.endswith("; 2 workers")
    with pytest.raises(UserError, match="devices: received 2"):
        strategy.choose(distribution, WITH_PS.at(Task("worker")))


def test_a_batch_needs_a_row_for_each_replica():
    batch_checks.check_replicas(4, 4)
    with pytest.raises(UserError, match=r"batch_size: received 3; .* the 4 replicas"):
        batch_checks.check_replicas(3, 4)
