"""The strategies themselves, on real devices."""

from __future__ import annotations

import json
import os
import textwrap

import pytest

from strategos.components.trainer.distribution.environment import (
    ClusterSpec,
    visible_gpus,
)

BUILD = """
    import json, os, sys
    import tensorflow as tf
    from strategos.components.trainer.distribution import strategy
    from strategos.components.trainer.distribution.environment import ClusterSpec

    distribution = json.loads(sys.argv[1])
    cluster = ClusterSpec.from_environment()
    made = strategy.build(strategy.choose(distribution, cluster), distribution, cluster)
    with made.scope():
        variable = tf.Variable([1.0, 2.0])

    @tf.function
    def step():
        def of_replica():
            replica = tf.distribute.get_replica_context()
            number = tf.cast(replica.replica_id_in_sync_group, tf.float32)
            return replica.all_reduce("sum", number + variable)
        return made.run(of_replica)

    result = made.experimental_local_results(step())[0].numpy().tolist()
    print(json.dumps({
        "class": type(made).__name__,
        "replicas": made.num_replicas_in_sync,
        "result": result,
        "variable": type(variable).__name__,
        "gpus": len(tf.config.get_visible_devices("GPU")),
        "growth": [tf.config.experimental.get_memory_growth(gpu)
                   for gpu in tf.config.get_visible_devices("GPU")],
        "exchange": type(getattr(made.extended, "_cross_device_ops", None)).__name__,
        "options": str(getattr(made.extended, "_communication_options", "")),
    }), flush=True)
    sys.stdin.read()
    os._exit(0)
"""


@pytest.fixture
def start(script):
    """Starts a process that builds a strategy: `start(distribution, **environ)`."""
    code = textwrap.dedent(BUILD)
    return lambda distribution, **environ: script(
        code, json.dumps(distribution), **environ
    )


@pytest.fixture
def on_cpu(start):
    """The answer of such a process without GPUs."""
    return lambda distribution: start(distribution, CUDA_VISIBLE_DEVICES="-1").answer()


def test_mirrored_has_a_replica_on_each_logical_device(on_cpu):
    made = on_cpu({"strategy": "mirrored", "devices": 2})
    assert (made["class"], made["replicas"]) == ("MirroredStrategy", 2)
    assert made["variable"] == "MirroredVariable"
    assert made["result"] == [3.0, 5.0]  # 1 + 1 + (0 + 1), 2 + 2 + (0 + 1)


def test_mirrored_exchanges_as_configured(on_cpu):
    ops = {"strategy": "mirrored", "devices": 2, "cross_device_ops": "reduction_to_one"}
    made = on_cpu(ops)
    assert made["exchange"] == "ReductionToOneDevice"
    assert made["result"] == [3.0, 5.0]


def test_central_storage_computes_on_two_devices_and_stores_on_one(on_cpu):
    made = on_cpu({"strategy": "central_storage", "devices": 2})
    assert (made["class"], made["replicas"]) == ("CentralStorageStrategy", 2)
    assert made["variable"] != "MirroredVariable"
    assert made["result"] == [3.0, 5.0]


def test_one_device_is_the_default_strategy(on_cpu):
    made = on_cpu({"strategy": "one_device"})
    assert (made["class"], made["replicas"]) == ("_DefaultDistributionStrategy", 1)


def test_workers_of_a_cluster_reduce_together(start, answers, free_ports):
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    cluster = ClusterSpec({"chief": tuple(addresses[:1]), "worker": (addresses[1],)})
    communication = {"implementation": "ring", "bytes_per_pack": 4096, "timeout": 60.0}
    distribution = {
        "strategy": "multi_worker_mirrored",
        "communication": communication,
    }
    started = [
        start(
            distribution,
            TF_CONFIG=cluster.at(task).tf_config(),
            CUDA_VISIBLE_DEVICES="-1",
        )
        for task in cluster.tasks
    ]
    for made in answers(started):
        assert made["replicas"] == 2
        assert made["result"] == [3.0, 5.0]
        assert "bytes_per_pack=4096,timeout_seconds=60.0" in made["options"]
        assert made["options"].endswith("CommunicationImplementation.RING)")


needs_gpus = pytest.mark.skipif(
    len(visible_gpus()) < 2,
    reason="two GPUs are needed: `make test-gpu` on such a machine",
)


@pytest.mark.gpu
@needs_gpus
def test_mirrored_trains_on_all_gpus_by_nccl_with_growing_memory(start):
    made = start({"strategy": "mirrored", "cross_device_ops": "nccl"}).answer()
    assert made["replicas"] == made["gpus"] == len(visible_gpus())
    assert made["exchange"] == "NcclAllReduce"
    assert all(made["growth"])


@pytest.mark.gpu
@needs_gpus
def test_one_device_takes_one_gpu_and_leaves_the_others(start):
    made = start({"strategy": "one_device"}).answer()
    assert (made["gpus"], made["growth"]) == (1, [True])


@pytest.mark.gpu
@needs_gpus
def test_two_workers_with_a_gpu_each_exchange_by_nccl(start, answers, free_ports):
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
    cluster = ClusterSpec({"worker": addresses})
    distribution = {
        "strategy": "multi_worker_mirrored",
        "communication": {"implementation": "nccl"},
    }
    started = []
    for task in cluster.tasks:
        environ = dict(os.environ)
        mine = cluster.at(task).share_gpus(environ)
        environ["TF_CONFIG"] = mine.tf_config()
        started.append(start(distribution, **environ))
    for made in answers(started):
        assert made["replicas"] == len(visible_gpus()) // 2 * 2
        assert made["options"].endswith("CommunicationImplementation.NCCL)")
