"""What Kubeflow Pipelines keeps its data in: MariaDB, S3 (moto) and ML Metadata."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import requests
from failures import ClusterError
from sandbox import HOST, OBJECT_STORE
from servers import Servers

BUCKET = "models"
"""A bucket for pushed models; KFP makes the one of its artifacts itself."""

_SECONDS = 180
_GRANTS = """
create database if not exists mlpipeline;
create database if not exists metadb;
create user if not exists kfp@'%' identified by 'kfp';
grant all on *.* to kfp@'%';
"""


def start(servers: Servers, state: Path) -> None:
    """Starts MariaDB and S3.

    Args:
      servers: Keeps the processes.
      state: The cluster's folder.

    Raises:
      ClusterError: MariaDB's first database could not be made.
    """
    data, temporary = state / "mariadb", state / "mariadb-temporary"
    temporary.mkdir()
    # In /tmp, temporary tables have the names of those of another cluster.
    options = ["--no-defaults", f"--datadir={data}", f"--tmpdir={temporary}"]
    options += ["--user=root"]
    made_for_root = ["--skip-test-db", "--auth-root-authentication-method=normal"]
    done = subprocess.run(
        ["mariadb-install-db", *options, *made_for_root],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ClusterError(f"mariadb-install-db failed: {done.stdout}{done.stderr}")
    servers.start(
        "mariadb",
        [
            "mariadbd",
            *options,
            f"--socket={data}/socket",
            f"--bind-address={HOST}",
            "--skip-name-resolve",
            "--innodb-flush-log-at-trx-commit=0",
        ],
    )
    moto = [sys.executable, "-W", "ignore", "-m", "moto.server"]
    # KFP calls `minio-service.kubeflow`, of which moto would take the bucket's name.
    by_path = {"S3_IGNORE_SUBDOMAIN_BUCKETNAME": "true"}
    port = OBJECT_STORE.rpartition(":")[2]
    servers.start("s3", [*moto, "-H", HOST, "-p", port], by_path)


def wait(servers: Servers, state: Path) -> None:
    """Waits for both, then starts ML Metadata, which needs the database.

    Args:
      servers: Has the processes.
      state: The cluster's folder.

    Raises:
      ClusterError: A process did not start.
    """
    client = ["mariadb", "--no-defaults", f"--socket={state}/mariadb/socket", "-uroot"]

    def has_databases() -> bool:
        done = subprocess.run(client, input=_GRANTS, text=True, capture_output=True)
        return done.returncode == 0

    servers.wait("mariadb", has_databases, _SECONDS)
    server = Path(__file__).with_name("metadata_server.py")
    ready = state / "metadata-ready"
    servers.start("metadata", [sys.executable, "-W", "ignore", server, HOST, ready])
    servers.wait("s3", _has_bucket, _SECONDS)
    servers.wait("metadata", ready.exists, _SECONDS)


def _has_bucket() -> bool:
    with requests.Session() as session:
        session.trust_env = False
        return session.put(f"{OBJECT_STORE}/{BUCKET}", timeout=5).ok
