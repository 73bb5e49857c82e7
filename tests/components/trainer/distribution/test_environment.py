"""The cluster in the environment, and errors in its description."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.distribution.environment import (
    ClusterSpec,
    Task,
    visible_gpus,
)

CLUSTER = {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"], "ps": ["d:2222"]}


def environ(cluster=CLUSTER, task=("worker", 1), variable="TF_CONFIG"):
    config = {"cluster": cluster, "environment": "cloud"}
    if task:
        config["task"] = dict(zip(("type", "index"), task, strict=True))
    return {variable: json.dumps(config)}


def test_tf_config_gives_the_cluster_and_this_process_its_task():
    cluster = ClusterSpec.from_environment(environ())
    assert cluster.addresses["worker"] == ("b:2222", "c:2222")
    assert cluster.task == Task("worker", 1)
    assert [task.name for task in cluster.tasks] == [
        "chief-0",
        "ps-0",
        "worker-0",
        "worker-1",
    ]
    assert not cluster.is_chief
    assert cluster.count("chief", "worker") == 3
    assert json.loads(cluster.tf_config())["cluster"] == CLUSTER


@pytest.mark.parametrize("value", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}])
def test_without_tf_config_a_process_is_on_its_own_and_publishes(value):
    cluster = ClusterSpec.from_environment(value)
    assert (cluster.addresses, cluster.task, cluster.is_chief) == ({}, None, True)


def test_without_a_chief_the_first_worker_publishes():
    workers = {"worker": ["a:1", "b:1"]}
    first = ClusterSpec.from_environment(environ(workers, ("worker", 0)))
    second = ClusterSpec.from_environment(environ(workers, ("worker", "1")))
    assert (first.is_chief, second.is_chief) == (True, False)


def test_vertex_pools_become_chief_workers_and_parameter_servers():
    pools = {"workerpool0": ["a:1"], "workerpool1": ["b:1", "c:1"]}
    pools["workerpool2"] = ["d:1"]
    settings = environ(pools, ("workerpool1", 1), "CLUSTER_SPEC")
    cluster = ClusterSpec.from_environment(settings)
    assert cluster.addresses == {
        "chief": ("a:1",),
        "worker": ("b:1", "c:1"),
        "ps": ("d:1",),
    }
    assert cluster.task == Task("worker", 1)


def test_tf_config_comes_before_cluster_spec():
    both = environ() | environ({"workerpool0": ["z:1"]}, None, "CLUSTER_SPEC")
    assert ClusterSpec.from_environment(both).count("worker") == 2


def test_an_evaluator_of_the_cluster_takes_no_part():
    cluster = environ({**CLUSTER, "evaluator": ["e:1"]})
    assert "evaluator" not in ClusterSpec.from_environment(cluster).addresses


@pytest.mark.parametrize(
    "text, says",
    [
        ("{'cluster': 1}", r"TF_CONFIG is not JSON \(.*\): .*'cluster': 1"),
        ("[1]", r"is not a JSON object: '\[1\]'"),
        ('{"task": {"type": "worker", "index": 0}}', "names no cluster: `cluster` is"),
        ('{"cluster": {}}', r"names no cluster: `cluster` is {}"),
    ],
)
def test_an_invalid_cluster_is_rejected(text, says):
    with pytest.raises(UserError, match=says) as caught:
        ClusterSpec.from_environment({"TF_CONFIG": text})
    assert 'Set it as {"cluster": {"chief": ["HOST:PORT"]' in str(caught.value)


@pytest.mark.parametrize(
    "cluster, task, says",
    [
        (CLUSTER, None, "does not name this process's task: `task` is null"),
        (CLUSTER, ("worker", 2), r"worker number 2, but its cluster has chief \(1\)"),
        (CLUSTER, ("worker", 2), "`task.index` must be 0 to 1"),
        (CLUSTER, ("ps", 1), "`task.index` must be 0"),
        (CLUSTER, ("worker", -1), "worker number -1"),
        (CLUSTER, ("worker", None), "worker number null"),
        (CLUSTER, ("master", 0), '`task.type` has a task of type "master", allowed:'),
        (CLUSTER, ("evaluator", 0), "the chief's process evaluates"),
        ({"worker": ["a:1"]}, ("ps", 0), r"a ps, but its cluster has only worker \(1"),
        ({"workers": ["a:1"]}, ("worker", 0), '"workers", allowed: chief, worker, ps'),
        (
            {"worker": "a:1"},
            ("worker", 0),
            '`cluster.worker` is "a:1", expected a list',
        ),
        ({"worker": ["a"]}, ("worker", 0), r'`cluster.worker` is \["a"\]'),
        ({"worker": ["a:70000"]}, ("worker", 0), "a:70000.*PORT from 1 to 65535"),
        ({"worker": ["a:0"]}, ("worker", 0), "a:0.*PORT from 1 to 65535"),
        ({"worker": ["a:1\n"]}, ("worker", 0), "expected a list of `HOST:PORT`"),
        ({"worker": ["a:1", "a:1"]}, ("worker", 0), "gives a:1 to more than one task"),
        ({"chief": ["a:1", "b:1"]}, ("chief", 0), "names 2 chiefs, expected one"),
    ],
)
def test_an_impossible_cluster_is_rejected_by_name(cluster, task, says):
    with pytest.raises(UserError, match=says):
        ClusterSpec.from_environment(environ(cluster, task))


@pytest.mark.parametrize(
    "variables, name",
    [
        ({}, None),
        ({"TPU_NAME": "my-tpu"}, "my-tpu"),
        ({"COLAB_TPU_ADDR": "10.0.0.2:8470"}, "grpc://10.0.0.2:8470"),
        ({"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "grpc://h:8470"}, "grpc://h:8470"),
        ({"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}, "local"),
        ({"TPU_ACCELERATOR_TYPE": "v5litepod-4"}, "local"),
        ({"TPU_WORKER_HOSTNAMES": "h0,h1"}, "grpc://h0:8470,grpc://h1:8470"),
    ],
)
def test_the_tpu_that_the_environment_names(variables, name):
    assert ClusterSpec.from_environment(variables).tpu == name


@pytest.fixture
def machine(tmp_path):
    """The root of a machine with four GPUs."""
    for index in range(4):
        (tmp_path / f"dev/nvidia{index}").parent.mkdir(exist_ok=True)
        (tmp_path / f"dev/nvidia{index}").touch()
    for other in ("nvidiactl", "nvidia-uvm"):
        (tmp_path / f"dev/{other}").touch()
    return tmp_path


@pytest.mark.parametrize(
    "visible, found",
    [
        (None, ("0", "1", "2", "3")),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("2, 3", ("2", "3")),
        ("1,7,2", ("1",)),
        ("GPU-8932f937,MIG-1b2c", ("GPU-8932f937", "MIG-1b2c")),
    ],
)
def test_gpus_are_counted_as_cuda_counts_them(machine, visible, found):
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert visible_gpus(environ, machine) == found


def test_before_its_devices_exist_the_driver_tells_of_a_gpu(tmp_path):
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0"}, tmp_path) == ()
    (tmp_path / "proc/driver/nvidia/gpus/0000:3b:00.0").mkdir(parents=True)
    assert visible_gpus({}, tmp_path) == ("0",)


@pytest.fixture
def shares(machine, monkeypatch):
    """GPUs that each task of a cluster on that machine may see, and their number."""
    monkeypatch.setattr(
        "strategos.components.trainer.distribution.environment.visible_gpus",
        lambda environ: visible_gpus(environ, machine),
    )

    def share(addresses, environ, lost=()):
        found, whole = {}, ClusterSpec(addresses, gpus=4)
        cluster = whole.without(lost)
        for task in cluster.tasks:
            own = dict(environ)
            mine = cluster.at(task).share_gpus(own)
            found[task.name] = (own["CUDA_VISIBLE_DEVICES"], mine.gpus)
        return found

    return share


def test_local_workers_divide_the_gpus_and_share_none(shares):
    two = {"chief": ("a:1",), "worker": ("b:1",)}
    assert shares(two, {}) == {"chief-0": ("0,1", 2), "worker-0": ("2,3", 2)}
    three = {"CUDA_VISIBLE_DEVICES": "3,1,0"}
    assert shares(two, three) == {"chief-0": ("3", 1), "worker-0": ("1", 1)}


def test_the_gpus_of_a_lost_worker_stay_unused(shares):
    addresses = {"chief": ("a:1",), "worker": ("b:1", "c:1", "d:1")}
    expected = {"chief-0": ("1", 1), "worker-0": ("3", 1)}
    assert shares(addresses, {}, lost=[2, 0]) == expected


@pytest.mark.parametrize("lost", [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("led", [True, False])
def test_a_smaller_cluster_keeps_addresses_and_order(led, lost):
    hosts = ("a:1", "[::1]:2", "c:3")
    addresses = {"worker": hosts}
    if led:
        addresses = {"chief": hosts[:1], "worker": hosts[1:]}
    whole = ClusterSpec(addresses, gpus=1)
    left = [task for place, task in enumerate(whole.tasks) if place not in lost]
    smaller = whole.without(lost)
    assert (smaller.whole, smaller.lost, smaller.gpus) == (3, lost, 1)
    assert smaller.tasks == whole.tasks[: len(left)]
    for task, before in zip(smaller.tasks, left, strict=True):
        assert smaller.address_of(task) == whole.address_of(before)
        assert smaller.at(task).former == before
        assert whole.at(before).without(lost).task == task
    for place in lost:
        assert whole.at(whole.tasks[place]).without(lost).task is None


def test_under_parameter_servers_only_workers_get_gpus(shares):
    addresses = {"chief": ("a:1",), "ps": ("b:1",), "worker": ("c:1", "d:1")}
    assert shares(addresses, {}) == {
        "chief-0": ("-1", 0),
        "ps-0": ("-1", 0),
        "worker-0": ("0,1", 2),
        "worker-1": ("2,3", 2),
    }


def test_without_gpus_there_is_nothing_to_share(tmp_path):
    environ = {}
    cluster = ClusterSpec({"worker": ("a:1", "b:1")}, Task("worker"))
    assert cluster.share_gpus(environ) == cluster
    assert environ == {}


def test_neither_this_nor_the_choice_needs_tensorflow():
    code = (
        "import sys\n"
        "from strategos.components.trainer.distribution import environment, strategy\n"
        "strategy.choose({}, environment.ClusterSpec.from_environment())\n"
        "assert not {'tensorflow', 'tfx', 'apache_beam'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
