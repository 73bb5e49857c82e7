"""Vocabularies whose write an engine ends twice, beside Beam's own sink."""

from __future__ import annotations

import gzip

import apache_beam as beam
import pytest
from apache_beam.pipeline import PipelineVisitor

from strategos.components.transform import vocabularies

LINES = [f"value {n}" for n in (3, 1, 2)]


def write(path, lines, keep, text):
    """Writes as TFT does; the sink."""
    found = []

    class Sinks(PipelineVisitor):
        def enter_composite_transform(self, node):
            if isinstance(node.transform, beam.io.Write):
                found.append(node.transform.sink)

    kind = beam.io.WriteToText if text else beam.io.WriteToTFRecord
    with beam.Pipeline(
        runner="apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    ) as pipeline:
        values = lines if text else [line.encode() for line in lines]
        written = (
            pipeline
            | beam.Create(values, reshuffle=False)
            | kind(path, shard_name_template="")
        )
        _ = (  # as the graph waits for its vocabularies
            pipeline
            | "Path" >> beam.Create([path])
            | beam.Map(lambda path, _: open(path).close(), beam.pvalue.AsIter(written))
        )
        if keep:
            vocabularies.keep_final(pipeline)
        pipeline.visit(Sinks())
    return found[0]


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("lines", [LINES, []])
def test_file_is_that_of_beam_and_outlives_a_second_end_of_its_write(
    tmp_path, lines, text
):
    name = "shop" if text else "shop.tfrecord.gz"
    beams, ours = tmp_path / "beam" / name, tmp_path / "ours" / name
    write(str(beams), lines, keep=False, text=text)
    sink = write(str(ours), lines, keep=True, text=text)

    def content(path):
        return path.read_bytes() if text else gzip.decompress(path.read_bytes())

    assert content(ours) == content(beams)
    begun = sink.initialize_write()
    for _ in range(2):  # a worker dies after the first end
        results = [f"{begun}/gone.{name}"]
        assert sink.pre_finalize(begun, results) is None
        list(sink.finalize_write(begun, results, None))
    assert content(ours) == content(beams)
    assert [path.name for path in ours.parent.iterdir() if path.is_file()] == [name]
