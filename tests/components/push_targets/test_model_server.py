"""What a model server sees while models are pushed, rolled back, removed and killed.

`tensorflow_model_server` is in no package index. `Server` re-enacts its policy for a
base path: each poll takes the highest number among the folders for the newest version,
whatever is in it, and loads it; if that fails, the loaded version stays.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from strategos.components.push_targets import targets

FILES = ("saved_model.pb", "variables/variables.index", "assets/words")


class Folder:
    """A local serving folder, read without the code that writes it."""

    def __init__(self, url):
        self.path = Path(url)

    def newest(self):
        if not self.path.is_dir():
            return 0
        names = [path.name for path in self.path.iterdir()]
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def load(self, version):
        return [(self.path / str(version) / name).read_text() for name in FILES]


class Bucket:
    """A serving folder on S3, read by another client than the one that writes."""

    def __init__(self, url, client):
        self.client, self.prefix = client, f"{url.removeprefix('s3://bucket/')}/"

    def newest(self):
        listed = self.client.list_objects_v2(
            Bucket="bucket", Prefix=self.prefix, Delimiter="/"
        )
        found = [each["Prefix"] for each in listed.get("CommonPrefixes", ())]
        return max((int(name.split("/")[-2]) for name in found), default=0)

    def load(self, version):
        time.sleep(0.02)  # the bucket's server is a thread of this process
        return [self._read(f"{self.prefix}{version}/{name}") for name in FILES]

    def _read(self, key):
        try:
            found = self.client.get_object(Bucket="bucket", Key=key)
        except self.client.exceptions.NoSuchKey as error:
            raise FileNotFoundError(key) from error
        return found["Body"].read().decode()


class Server(threading.Thread):
    """Follows a base path until it is stopped.

    Attributes:
      loads: Number of versions that were loaded.
      faults: What a server must never see.
    """

    def __init__(self, place, waits_for_model):
        super().__init__(daemon=True)
        self.place, self.waits_for_model = place, waits_for_model
        self.loads, self.faults, self.is_over = 0, [], False

    def run(self):
        loaded = 0
        while not self.is_over:
            version = self.place.newest()
            if version < loaded:
                self.faults.append(f"{version} after {loaded}")
            if version != loaded and self._load(version):
                loaded, self.loads = version, self.loads + 1

    def _load(self, version):
        try:
            content = self.place.load(version)
        except FileNotFoundError as error:
            is_newest = version == self.place.newest()  # else it was removed meanwhile
            if is_newest and not (self.waits_for_model and FILES[0] in str(error)):
                self.faults.append(f"{version}: {error}")
            return False
        if len(set(content)) != 1:
            self.faults.append(f"{version}: {content}")
        return True

    def wait(self):
        """Returns once a version was loaded, or after a minute."""
        end = time.monotonic() + 60
        while not self.loads and time.monotonic() < end:
            time.sleep(0.01)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.join()


@pytest.fixture
def on_s3(bucket_client, tmp_path):
    """The URL of a target and the server that follows it."""
    url = f"s3://bucket/{tmp_path.name}"
    return url, Server(Bucket(url, bucket_client), waits_for_model=True)


@pytest.fixture(params=["folder", pytest.param("on_s3", marks=pytest.mark.faults)])
def serving(request, tmp_path):
    """The same, of a folder or on S3."""
    if request.param == "on_s3":
        return request.getfixturevalue("on_s3")
    url = str(tmp_path / "serving")
    return url, Server(Folder(url), waits_for_model=False)


@pytest.fixture
def make_model(tmp_path):
    """Makes a model whose files all have the same content."""

    def make(content):
        for name in FILES:
            path = tmp_path / f"model-{content}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(content))
        return str(tmp_path / f"model-{content}")

    return make


def test_no_part_of_a_version_is_seen_during_pushes_and_rollbacks(serving, make_model):
    url, server = serving
    with server:
        for second in range(8):
            target = targets.of(url, lambda: 0.0)
            target.push(make_model(second), keep=1 + second % 2)
            if second % 4 == 3:
                with targets.local(target.path(target.versions()[0])) as earlier:
                    target.push(earlier, keep=2)
        server.wait()
    assert server.loads and not server.faults


_PUSHES = """
import sys
from strategos.components.push_targets import targets
target, models = targets.of(sys.argv[1]), sys.argv[2:]
print("begun", flush=True)
while True:
    for model in models:
        target.push(model, keep=2, manifest={})
"""


@pytest.mark.faults
def test_no_part_of_a_version_is_seen_when_pushes_are_killed(on_s3, make_model):
    url, server = on_s3
    models, chance = [make_model(number) for number in range(3)], random.Random(1)
    with server:
        for _ in range(8):
            command = [sys.executable, "-c", _PUSHES, url, *models]
            pushes = subprocess.Popen(command, stdout=subprocess.PIPE)
            pushes.stdout.readline()
            server.wait()
            time.sleep(chance.uniform(0, 0.2))
            pushes.send_signal(signal.SIGKILL)
            pushes.communicate()
    assert server.loads and not server.faults
    target = targets.of(url)
    target.push(models[0], keep=1)
    assert len(target.versions()) == 1
