"""All components that work on data, as under a root on a real S3 server, on Flink.

Examples are on the server, and all other artifacts are local copies.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

import pytest

from strategos.components.shards.engine import Engine
from strategos.components.user_code.workload_paths import WorkloadPaths

pytestmark = pytest.mark.engine

DRIVER = """
import sys

from strategos.components import fork_server
from strategos.components.user_code import modules

fork_server.start()  # as in a run: workers are forks of what is imported
folder, *places = sys.argv[1:]
modules.activate(folder)
import chain

chain.run(*places)
"""
# Graphs and models count by what they make of the rows; this one names the model.
OWN = ("graph/transform_fn/", "model/", "evaluation/eval_config.json")


@pytest.fixture
def start(copy_workload, warm_tfx, tmp_path):
    """Starts the chain of components on an engine: `start(engine, base, store)`."""
    folder = tmp_path / "workload"
    copy_workload("nodes", folder)

    def start(engine, *places):
        return warm_tfx.script(
            DRIVER,
            *(str(folder), *map(str, places)),
            TMPDIR=str(tmp_path),
            **engine.to_environment(),
            **WorkloadPaths(folder=str(folder)).to_environment(),
        )

    return start


@pytest.fixture
def table(start, tmp_path):
    """The data, in a folder `local`."""
    path = tmp_path / "local" / "data" / "a.parquet"
    path.parent.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path / "workload")
        import chain

        chain.write_table(path)
        for name in ("chain", "nodes"):
            sys.modules.pop(name)
    return path


def local_files(folder):
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def remote_files(client, below):
    found = client.list_objects_v2(Bucket="bucket", Prefix=below)["Contents"]
    keys = {each["Key"] for each in found} - {below}
    # KFP's launcher could not copy examples with an object that stands for a folder.
    assert not [key for key in keys if key.endswith("/")]
    bodies = {key: client.get_object(Bucket="bucket", Key=key)["Body"] for key in keys}
    return {key.removeprefix(below): body.read() for key, body in bodies.items()}


def kill_a_worker(driver, connected_workers, folder):
    """Kills a worker process; whether there was one before the driver ended."""
    while driver.poll() is None:
        for pid in connected_workers(folder)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        time.sleep(0.1)
    return False


def test_files_on_s3_are_those_of_threads_here_though_a_worker_is_killed(
    bucket, bucket_client, start, table, connected_workers, tmp_path
):
    local, copies = table.parents[1], tmp_path / "copies"
    threads = start(Engine(), local)
    bucket_client.upload_file(str(table), "bucket", "chain/data/a.parquet")
    engine = Engine("flink", 2, exchange=f"{bucket}/exchange/.engine")
    flink = start(engine, copies, f"{bucket}/chain")
    killed = kill_a_worker(flink, connected_workers, tmp_path)
    threads.output()
    flink.output()
    assert killed
    ours = remote_files(bucket_client, "chain/") | local_files(copies)
    theirs = local_files(local)
    assert ours.keys() == theirs.keys()
    differing = [name for name in ours if ours[name] != theirs[name]]
    assert [name for name in differing if not name.startswith(OWN)] == []
    folders = {name.partition("/")[0] for name in ours}
    assert {"examples", "statistics", "rows", "evaluation"} <= folders
