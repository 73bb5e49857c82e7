"""Work on shards: ordered results, one error, nothing left behind."""

from __future__ import annotations

import os
import shutil
import threading
import time

import apache_beam as beam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategos.components.errors import UserError
from strategos.components.shards import beam_runners, pipeline, progress, threads
from strategos.components.shards import fold as folds
from strategos.components.shards.engine import Engine
from strategos.components.shards.fold import fold


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


# `pipeline`: any engine but `direct`, here on Beam's in-process runner.
ENGINES = [Engine(workers=n) for n in (1, 2, 5)] + [Engine("pipeline")]


@pytest.fixture(autouse=True)
def on_start(monkeypatch):
    """Functions that are called before a pipeline starts."""
    found = []

    def make_pipeline(engine):
        for function in found:
            function()
        return in_process(Engine())

    in_process = beam_runners.make_pipeline
    monkeypatch.setattr(beam_runners, "make_pipeline", make_pipeline)
    return found


@pytest.fixture(params=ENGINES, ids=["one", "two", "five", "pipeline"])
def engine(request):
    return request.param


@pytest.mark.parametrize("count", [1, 2, 32, 100])
def test_results_are_merged_in_the_order_of_the_shards(tmp_path, engine, count):
    found = fold(engine, range(count), numbers, join, str(tmp_path))
    assert found == list(range(count))
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("count", [31, 32, 33, 70])
def test_shape_of_the_merging_does_not_depend_on_the_engine(tmp_path, count):
    shapes = {fold(e, range(count), as_tree, nest, str(tmp_path)) for e in ENGINES}
    assert len(shapes) == 1


@pytest.mark.parametrize("count", [9, 10, 28])
def test_groups_of_groups_are_merged_alike_on_every_engine(
    tmp_path, monkeypatch, count
):
    monkeypatch.setattr(folds, "_GROUP", 3)
    monkeypatch.setattr(pipeline, "_BLOCK", 4)  # so that shards are in several files
    (shape,) = {fold(e, range(count), as_tree, nest, str(tmp_path)) for e in ENGINES}
    assert shape.replace("(", "").replace(")", "") == " ".join(map(str, range(count)))
    deepest = max(shape[:end].count("(") - shape[:end].count(")") for end in range(60))
    assert deepest <= 2 * pipeline._levels(count, 3)  # by threes, a level nests twice
    assert not os.listdir(tmp_path)


@given(count=st.integers(1, 3000), group=st.integers(2, 40))
def test_joining_all_results_copies_each_a_bounded_number_of_times(count, group):
    copied = []

    def count_copies(earlier, later):
        copied.append(len(earlier) + len(later))
        return earlier + later

    results = ([number] for number in range(count))
    assert threads._merged(results, count, count_copies, group) == list(range(count))
    assert len(copied) == count - 1
    assert sum(copied) <= count * group * pipeline._levels(count, group)


class NotRunError(Exception):
    pass


class NotRun(beam.Pipeline):
    """A pipeline whose size is taken instead of a run."""

    def run(self, test_runner_api="AUTO"):
        raise NotRunError(self.to_runner_api().ByteSize())


def test_size_of_the_pipeline_does_not_depend_on_the_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(beam_runners, "make_pipeline", lambda engine: NotRun(argv=[]))
    sizes = []
    for count in (1100, 5000, 30_000):  # as many levels of merging
        shards = [f"shard {number} of several" for number in range(count)]
        with pytest.raises(NotRunError) as stopped:
            fold(ENGINES[-1], shards, numbers, join, str(tmp_path))
        sizes.append(stopped.value.args[0])
    # Ids and compressed code differ by some hundred bytes; the shards are 600 kB.
    assert max(sizes) - min(sizes) < min(sizes) / 20
    assert not os.listdir(tmp_path)


def test_error_of_the_earliest_shard_is_raised_with_its_fields(tmp_path, engine):
    with pytest.raises(UserError) as error:
        fold(engine, range(2, 60), odd_fails, join, str(tmp_path))
    assert (error.value.key, error.value.received) == ("data.examples", "3")
    assert not os.listdir(tmp_path)


def test_bug_in_the_work_is_not_hidden(tmp_path, engine):
    with pytest.raises(Exception, match="ZeroDivisionError|division"):
        fold(engine, range(3), breaks, join, str(tmp_path))
    assert not os.listdir(tmp_path)


class TwoPartsError(Exception):
    def __init__(self, what, where):
        super().__init__(f"{what} in {where}")


def raises_what_cannot_be_pickled(shard):
    raise TwoPartsError("bad", shard)


def test_exception_that_cannot_be_pickled_keeps_its_type_and_message(tmp_path):
    with pytest.raises(RuntimeError, match="^TwoPartsError: bad in 0$") as error:
        fold(ENGINES[-1], range(3), raises_what_cannot_be_pickled, join, str(tmp_path))
    assert "in raises_what_cannot_be_pickled" in str(error.value.__cause__)


def test_workers_that_do_not_see_the_folder_are_named(tmp_path, on_start):
    on_start.append(lambda: [shutil.rmtree(path) for path in tmp_path.iterdir()])
    with pytest.raises(UserError, match="a worker on .* does not see") as error:
        fold(ENGINES[-1], range(3), numbers, join, str(tmp_path))
    assert error.value.key == "run.root"


def test_workers_that_cannot_write_to_the_folder_are_named(tmp_path, request, on_start):
    """The workers are another user's: here, this process while it runs the pipeline."""
    if os.geteuid():
        pytest.skip("only root can work as another user")

    request.addfinalizer(lambda: os.seteuid(0))
    on_start.append(lambda: os.seteuid(65534))
    with pytest.raises(
        Exception, match=r"a worker on .* \(user id 65534\) cannot write"
    ):
        fold(ENGINES[-1], range(3), numbers, join, str(tmp_path))


def test_shards_are_worked_on_at_the_same_time_but_few_at_once(tmp_path):
    together = threading.Barrier(3)
    begun = []

    def work(shard):
        begun.append(shard)
        if shard < 3:
            together.wait(60)
        if shard == 0:
            time.sleep(0.3)  # the others must not run far ahead of it
            return max(begun)
        return 0

    furthest = fold(Engine(workers=3), range(100), work, max, str(tmp_path))
    assert 3 <= furthest < 10


@pytest.mark.parametrize("error", [UserError("is bad"), KeyboardInterrupt()])
def test_failed_shard_ends_the_work_on_others_at_once(tmp_path, error):
    others_run = threading.Event()

    def work(shard):
        if shard == 0:
            others_run.wait(60)
            raise error
        others_run.set()
        for _ in range(6000):  # a large shard: a minute
            progress.add(1)
            time.sleep(0.01)

    started = time.monotonic()
    with pytest.raises(type(error)):
        fold(Engine(workers=2), range(9), work, join, str(tmp_path))
    assert time.monotonic() - started < 20
    progress.begin(None)
    progress.add(1)  # this thread is not ended
