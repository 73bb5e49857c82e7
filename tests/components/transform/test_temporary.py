"""Where the analysis keeps its temporary files: where the workers of its engine are."""

from __future__ import annotations

import os
import sys

import pytest

SCRIPT = """
import json, os

import tensorflow as tf

from strategos.components.files import filesystems
from strategos.components.shards.engine import Engine
from strategos.components.transform import analysis

filesystems.register("s3://bucket")
found = []
for runner in ("portable", "direct"):
    with analysis._temporary(Engine(runner), "s3://bucket/graph") as folder:
        with tf.io.gfile.GFile(f"{folder}/vocabulary", "w") as file:
            file.write("word")
        found.append(folder)
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="TensorFlow opens no s3://")
def test_workers_see_the_temporary_files_of_a_remote_graph(
    bucket, bucket_client, warm_tfx
):
    theirs, ours = warm_tfx.script(SCRIPT).answer()
    assert theirs == f"{bucket}/graph/.temp"
    assert os.path.isabs(ours) and not os.path.exists(ours)
    assert "Contents" not in bucket_client.list_objects_v2(Bucket="bucket")
