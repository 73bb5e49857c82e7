"""Fixtures of the servers in `tests/lab`, and of networks between them."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from cloud_storage import CloudStorage
from databases import PostgreSQL
from kubernetes_cluster import Kubernetes
from s3 import S3
from server import running


@pytest.fixture(scope="module")
def object_store():
    """The scheme of `bucket`; a module that overrides it can try both."""
    return "s3"


@pytest.fixture(scope="session")
def cloud_storage_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cloud-storage")


@pytest.fixture(scope="module")
def cloud_storage(environment, cloud_storage_folder):
    """A Google Cloud Storage of its own."""
    with running(CloudStorage(cloud_storage_folder)) as store:
        for name, value in store.environment().items():
            environment.setenv(name, value)
        yield store


@pytest.fixture(scope="module")
def s3_client(environment):
    """A client of an S3 server of its own, with the empty bucket `bucket`."""
    with running(S3()) as store:
        for name, value in store.environment().items():
            environment.setenv(name, value)
        yield store.client()


@pytest.fixture(scope="module")
def postgresql(free_ports):
    """The URL of a database on a PostgreSQL server of its own."""
    with running(PostgreSQL(*free_ports(1))) as found:
        yield found.address


@pytest.fixture(scope="module")
def bucket_client(object_store, request):
    """A client of an object store of its own, as boto3's, with the bucket `bucket`."""
    if object_store == "gs":
        return request.getfixturevalue("cloud_storage").client()
    return request.getfixturevalue("s3_client")


@pytest.fixture(scope="module")
def bucket(object_store, bucket_client):
    """The URL of an empty bucket on an object store of its own."""
    return f"{object_store}://bucket"


def _ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True).returncode == 0


def _lay(cable, ends):
    """Joins two namespaces by a cable of this name; returns whether that worked."""
    devices = [f"{cable}{side}" for side in "ab"]
    made = _ip("link", "add", devices[0], "type", "veth", "peer", "name", devices[1])
    for device, (name, address) in zip(devices, ends, strict=True):
        made = made and all(
            (
                _ip("link", "set", device, "netns", name),
                _ip("-n", name, "addr", "add", address, "dev", device),
                _ip("-n", name, "link", "set", "lo", "up"),
                _ip("-n", name, "link", "set", device, "up"),
            )
        )
    return made


@pytest.fixture
def make_namespaces():
    """Makes network namespaces joined by cables: `make_namespaces(*cables)`.

    A cable is a mapping from the names of two hosts to their addresses. Returns the
    namespace of each host by its name.
    """
    made = {}

    def make(*cables):
        if os.geteuid() != 0 or shutil.which("ip") is None:
            pytest.skip("network namespaces need root and the command `ip`")
        hosts = dict.fromkeys(host for cable in cables for host in cable)
        made.update({host: f"strategos-{host}-{os.getpid()}" for host in hosts})
        done = all(_ip("netns", "add", name) for name in made.values())
        for number, cable in enumerate(cables):
            ends = [(made[host], address) for host, address in cable.items()]
            done = done and _lay(f"s{os.getpid()}n{number}", ends)
        if not done:
            pytest.skip("network namespaces cannot be made here")
        return dict(made)

    yield make
    for name in made.values():
        _ip("netns", "del", name)


@pytest.fixture(scope="module")  # one that idles takes a third of a core
def cluster(tmp_path_factory):
    """A Kubernetes with Kubeflow, which no test ends."""
    with running(Kubernetes(tmp_path_factory.mktemp("cluster-logs"))) as found:
        yield found
