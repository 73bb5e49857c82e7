"""Work on shards: ordered results, one error, nothing left behind."""

from __future__ import annotations

import os
import time

import apache_beam as beam
import pytest

from strategos.components.errors import UserError
from strategos.components.shards.fold import fold
from strategos.pipeline.plan.graph import BEAM_ARGS

THREADS = ("--direct_running_mode=multi_threading", "--direct_num_workers=3")


def numbers(shard):
    time.sleep(0.001 * (shard % 3))  # so that they end in another order
    return [shard]


def join(earlier, later):
    return earlier + later


def as_tree(shard):
    return str(shard)


def nest(earlier, later):
    return f"({earlier} {later})"


def odd_fails(shard):
    if shard % 2:
        raise UserError("is odd", key="data.examples", received=str(shard))
    return shard


def breaks(shard):
    return 1 // (shard - 1)


@pytest.fixture(params=[(), THREADS], ids=["one", "threads"])
def make_pipeline(request):
    return lambda: beam.Pipeline(argv=[*BEAM_ARGS, *request.param])


@pytest.mark.parametrize("count", [1, 2, 32, 100])
def test_results_are_merged_in_the_order_of_the_shards(tmp_path, make_pipeline, count):
    found = fold(make_pipeline, range(count), numbers, join, str(tmp_path))
    assert found == list(range(count))
    assert not os.listdir(tmp_path)


def test_shape_of_the_merging_does_not_depend_on_the_workers(tmp_path):
    shapes = {
        fold(
            lambda args=args: beam.Pipeline(argv=[*BEAM_ARGS, *args]),
            range(70),
            as_tree,
            nest,
            str(tmp_path),
        )
        for args in ((), THREADS)
    }
    assert len(shapes) == 1


def test_error_of_the_earliest_shard_is_raised_with_its_fields(tmp_path, make_pipeline):
    with pytest.raises(UserError) as error:
        fold(make_pipeline, range(2, 60), odd_fails, join, str(tmp_path))
    assert (error.value.key, error.value.received) == ("data.examples", "3")
    assert not os.listdir(tmp_path)


def test_bug_in_the_work_is_not_hidden(tmp_path, make_pipeline):
    with pytest.raises(Exception, match="ZeroDivisionError|division"):
        fold(make_pipeline, range(3), breaks, join, str(tmp_path))
    assert not os.listdir(tmp_path)
