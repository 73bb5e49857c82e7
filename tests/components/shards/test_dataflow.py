"""Beam's own Dataflow runner makes a job of each component's pipelines.

In its dry run, which sends nothing: no test has run on the service.
"""

from __future__ import annotations

import pytest
from apache_beam.portability.api import beam_runner_api_pb2

from strategos.components.shards.engine import Engine

IMAGE = "registry.example.com/flights:1"


def steps(job) -> set[str]:
    """Names of a job's outermost steps."""
    transforms = job.proto_pipeline.components.transforms.values()
    return {each.unique_name.partition("/")[0] for each in transforms}


def images(job) -> set[str]:
    environments = job.proto_pipeline.components.environments.values()
    payload = beam_runner_api_pb2.DockerPayload
    return {payload.FromString(each.payload).container_image for each in environments}


FOLD = {"Shards", "Spread", "Work", "Group0", "Merge0", "Save"}


def test_pipelines_of_data_become_jobs_in_the_image(
    dataflow_jobs, table, write_examples, write_statistics, tmp_path, monkeypatch
):
    from strategos.components.data_files import shards
    from strategos.components.statistics_gen import executor

    monkeypatch.setattr(shards, "_LEAST_BYTES", table.stat().st_size // 8)
    monkeypatch.setattr(executor, "_SHARD_FILES", 2)
    examples = write_examples(table, tmp_path / "examples")
    assert len(dataflow_jobs) == 3  # where rows begin, types, writing
    write_statistics(examples, tmp_path / "statistics")
    assert len(dataflow_jobs) == 4
    for job in dataflow_jobs:
        assert steps(job) >= FOLD
        assert images(job) == {IMAGE}
    cloud = dataflow_jobs[0].google_cloud_options
    assert (cloud.project, cloud.region) == ("flights-17", "europe-west4")
    assert cloud.staging_location.startswith("gs://a-bucket/temp")
    assert len({job.google_cloud_options.job_name for job in dataflow_jobs}) == 4


@pytest.mark.engine  # eight seconds
def test_pipelines_of_transform_become_jobs_in_the_image(dataflow_jobs, tmp_path):
    import tensorflow as tf
    import tensorflow_transform as tft
    from tensorflow_metadata.proto.v0 import schema_pb2

    from strategos.components.transform import analysis
    from strategos.components.transform.materialize import materialize

    schema = schema_pb2.Schema()
    feature = schema.feature.add(name="x", type=schema_pb2.BYTES)
    feature.presence.min_fraction = 1
    feature.shape.dim.add(size=1)
    files = [str(tmp_path / f"{number}.gz") for number in range(2)]
    for file in files:
        with tf.io.TFRecordWriter(file, "GZIP") as writer:
            example = tf.train.Example()
            example.features.feature["x"].bytes_list.value.append(b"word")
            writer.write(example.SerializeToString())

    def preprocess(inputs):
        return {"x": tft.compute_and_apply_vocabulary(inputs["x"])}

    graph = str(tmp_path / "graph")
    engine = Engine.from_environment()
    analysis.analyze(engine, preprocess, files, schema, graph)
    materialize(engine, graph, {"train": files}, str(tmp_path / "transformed"))
    analyzed, written = dataflow_jobs
    assert {"Files", "Read", "AnalyzeDataset"} <= steps(analyzed)
    assert steps(written) >= FOLD
    assert images(analyzed) == images(written) == {IMAGE}
