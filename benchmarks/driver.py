"""Measures what the driver does by number of shards, with a simulated engine.

    python benchmarks/driver.py --shards 10000 100000 1000000

The driver is the process that lists, plans, cuts, merges and commits; its code here is
the product's. Simulated are the workers: 500 of them answer after simulated times, some
late and some never, by a clock that does not sleep. Their results have the types of the
product and about 200 bytes. Data files are real: small ones to list and to hash, then
sparse ones of ten shards each. Files that workers would write are names only.

Prints CPU seconds and peak memory of the driver by step. Each number of shards, and
each engine, has its own process; its imports are not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import heapq
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import apache_beam as beam
from tfx.types import standard_artifacts

from strategos.components.data_files import inference, pieces, shards, spans, writing
from strategos.components.data_files.findings.duplicates import RowHashes
from strategos.components.data_files.findings.empty_cells import EmptyCells
from strategos.components.data_files.findings.rejected import Rejected
from strategos.components.data_files.sources.text import csv_cuts
from strategos.components.data_files.values import numerals
from strategos.components.data_files.values.kinds import Kind
from strategos.components.evaluation import scoring
from strategos.components.example_gen import executor as example_gen
from strategos.components.files import storage
from strategos.components.records import columns, write
from strategos.components.records.write import Written, attempt
from strategos.components.shards import beam_runners, pipeline, threads
from strategos.components.shards import fold as folds
from strategos.components.shards.engine import Engine
from strategos.components.statistics_gen import executor as statistics_gen
from strategos.components.transform import materialize

WORKERS = 500
SECONDS = 1.0  # of a shard
LATE, LOST = 0.01, 0.001  # parts of the shards
LATE_TIMES = 10.0
PER_FILE = 10
SHARD_BYTES = 32 << 20
SPLITS = ("train", "eval")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--engines", nargs="+", default=["direct", "beam"])
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        (number,), (engine,) = arguments.shards, arguments.engines
        measure(number, engine)
        return
    for engine in arguments.engines:
        for number in arguments.shards:
            command = [sys.executable, __file__, "--one", "--shards", str(number)]
            print(f"{number:,} shards, {engine}", flush=True)
            subprocess.run([*command, "--engines", engine], check=True)


def measure(number: int, engine: str) -> None:
    """Prints the cost of each step for a number of shards."""
    gc.freeze()  # as processes of a run do after their imports
    storage.move = lambda source, target: None  # of files that are names only
    meter = Meter()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as out:
        files = max(1, number // PER_FILE)
        pattern = write_files(Path(folder), files)
        runner = Simulated(engine, out, meter)
        with meter.step("list files"):
            chosen = spans.find_spans(pattern)
        with meter.step("fingerprint, new"):
            spans.fingerprint(chosen, Path(out, "memo"))
        with meter.step("fingerprint, known"):
            spans.fingerprint(chosen, Path(out, "memo"))
        with meter.step("open files"):
            opened = shards.open_files(chosen)
        for path in chosen[0].files:
            os.truncate(path, PER_FILE * SHARD_BYTES)
        with meter.step("cut"):
            data = runner.cut(pattern, opened)
        with meter.step("infer types"):
            data, profiles = runner.inspect(data, numerals.ONLY_EMPTY)
        with meter.step("write examples"):
            outcome = runner.fold(data, written_shard, writing.Outcome.merge)
        with meter.step("commit"):
            outcome.publish(out)
        with meter.step("record"):
            record(chosen, outcome, out)
        del outcome, profiles
        shards_of_files(meter, runner, number)
        total = f"{meter.cpu:.1f} s, {meter.peak >> 20:,} MB"
        print(f"  {len(data):,} shards in all: {total}", flush=True)


def shards_of_files(meter: Meter, runner: Simulated, number: int) -> None:
    """The folds over the files that a node has written."""
    examples = standard_artifacts.Examples()
    examples.uri, examples.split_names = runner.folder, '["train"]'
    names = [f"{runner.folder}/data-{n:07}-of-{number:07}" for n in range(number)]
    storage.statuses = lambda paths: [storage.Status(1 << 20, 0)] * len(paths)
    columns.files = lambda uri, split: names
    with meter.step("statistics"):
        some = list(statistics_gen._shards(examples, "train"))
        runner.fold(some, one_count, add_counts)
    with meter.step("transform"):
        each = [("train", file) for file in names]
        splits, _ = runner.fold(each, transformed_shard, materialize._merge)
    with meter.step("commit transformed"):
        materialize.splits.publish(runner.folder, splits)
    with meter.step("plan evaluation"):
        scoring.shards(names)


class Meter:
    """CPU seconds and peak memory of this process by step."""

    def __init__(self) -> None:
        self.cpu, self.peak, self.workers = 0.0, 0, 0.0

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Prints the cost of a block, without that of its simulated workers."""
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        self.workers = 0.0
        started = time.process_time()
        yield
        used = time.process_time() - started - self.workers
        peak = _kilobytes("VmHWM") << 10
        self.cpu, self.peak = self.cpu + used, max(self.peak, peak)
        print(f"  {name:20} {used:8.2f} s {peak >> 20:8,} MB", flush=True)

    @contextlib.contextmanager
    def worker(self) -> Iterator[None]:
        """Does not count the CPU of a block."""
        started = time.process_time()
        yield
        self.workers += time.process_time() - started


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


class Workers:
    """Simulated workers: each takes the next shard when it is done with the last.

    Attributes:
      now: Simulated seconds.
      busy: Simulated seconds of work, of all workers together.
    """

    def __init__(self, number: int, seed: int = 1):
        self.now = self.busy = 0.0
        self._free = [0.0] * number
        self._draw = random.Random(seed)

    def end_of_next(self) -> float:
        """When the next shard that is begun now will be done."""
        draw, begun = self._draw, max(self.now, heapq.heappop(self._free))
        took = SECONDS * draw.lognormvariate(0, 0.2)
        took *= LATE_TIMES if draw.random() < LATE else 1
        while draw.random() < LOST:  # found after all its time; another one repeats it
            took *= 2
        self.busy += took
        heapq.heappush(self._free, begun + took)
        return begun + took


class Pool(futures.Executor):
    """Simulated threads, each with a worker."""

    def __init__(self, workers: Workers, meter: Meter):
        self._workers, self._meter = workers, meter

    def submit(self, work: Callable[..., Any], shard: Any) -> Answer:
        return Answer(self, work, shard, self._workers.end_of_next())


class Answer:
    """The result of a simulated worker, as it comes through the pipe of a helper."""

    def __init__(self, pool: Pool, work: Callable[..., Any], shard: Any, end: float):
        self._pool, self._work, self._shard, self._end = pool, work, shard, end

    def result(self) -> Any:
        workers = self._pool._workers
        workers.now = max(workers.now, self._end)
        with self._pool._meter.worker():
            answer = pickle.dumps(self._work(self._shard))
        return pickle.loads(answer)


class Simulated(shards.ShardRunner):
    """Runs folds on simulated workers, by the product's code of an engine."""

    def __init__(self, engine: str, folder: str, meter: Meter):
        super().__init__(Engine(engine, workers=WORKERS), folder)
        self.folder, self._meter = folder, meter
        nothing = lambda *arguments: None  # noqa: E731
        write.fileio = types.SimpleNamespace(
            makedirs=nothing, rename=nothing, exists=nothing
        )
        pipeline._check_writable = nothing  # what workers ask the store for each shard
        pipeline._Work._check = pipeline._Work._failed_before = nothing
        beam_runners.make_pipeline = lambda engine: SimulatedPipeline(meter)

    def fold(
        self,
        some: Sequence[Any],
        work: Callable[[Any], Any],
        merge: Callable[[Any, Any], Any],
    ) -> Any:
        work = ANSWERS.get(
            work if callable(work) and work in ANSWERS else type(work), work
        )
        if self._engine.runner != "direct":
            return folds.fold(self._engine, some, work, merge, self.folder)
        workers = Workers(WORKERS)
        ahead = threads._AHEAD * WORKERS
        results = threads._in_order(Pool(workers, self._meter), some, work, ahead)
        merged = threads._merged(results, len(some), merge, folds._GROUP)
        share = workers.busy / WORKERS / workers.now
        print(f"    {len(some):,} shards, workers busy {share:.0%}")
        return merged


class SimulatedPipeline(beam.Pipeline):
    """Runs a fold's pipeline in another process, on simulated workers."""

    def __init__(self, meter: Meter):
        super().__init__(argv=list(beam_runners._IN_PROCESS))
        self._meter = meter

    def run(self, test_runner_api: str = "AUTO") -> Any:
        proto = self.to_runner_api()
        print(f"    {len(proto.SerializeToString()) >> 10:,} kB of pipeline")
        pid = os.fork()
        if not pid:
            status = 1
            try:
                evaluate(self.transforms_stack[0].parts, {})
                status = 0
            finally:
                os._exit(status)
        assert not os.waitpid(pid, 0)[1]
        return types.SimpleNamespace(wait_until_finish=lambda: None)


def evaluate(parts: Sequence[Any], values: dict[Any, list[Any]]) -> None:
    """Evaluates applied transforms of a fold's pipeline."""
    for part in parts:
        transform = part.transform
        given = [x for each in part.main_inputs.values() for x in values.get(each, [])]
        if isinstance(transform, beam.Create):
            made = list(transform.values)
        elif isinstance(transform, beam.Reshuffle):
            made = given
        elif isinstance(transform, beam.GroupByKey):
            groups: dict[Any, list[Any]] = {}
            for key, value in given:
                groups.setdefault(key, []).append(value)
            made = list(groups.items())
        elif isinstance(transform, beam.ParDo):
            made = [y for x in given for y in transform.fn.process(x) or ()]
        else:
            evaluate(part.parts, values)
            continue
        for out in part.outputs.values():
            values[out] = made


def scanned(wanted: tuple[Any, Any]) -> list[csv_cuts.Scan]:
    row = wanted[1].start + 1 if wanted[1].start else 0
    return [csv_cuts.Scan((False, False), (row, row), (row, row))]


def inspected(shard: pieces.Shard) -> Any:
    profile = inference.Profile(numerals.ONLY_EMPTY)
    profile._kind, profile.values, profile.numbers = Kind.INT, 1000, 1000
    return [1000 for _ in shard.pieces], {"x": profile}


def written_shard(shard: pieces.Shard) -> writing.Outcome:
    splits = {
        split: (_written(shard.number), _written(shard.number)) for split in SPLITS
    }
    labels = {"label": writing.LabelValues({0, 1}, 1000)}
    hashes, empty = RowHashes(SPLITS), EmptyCells()
    rejected = Rejected()
    return writing.Outcome(1000, splits, labels, {}, {}, hashes, empty, rejected)


def _written(number: int) -> Written:
    return Written.of([f"{attempt(number)}-00000"], 500)


def transformed_shard(shard: tuple[str, str]) -> Any:
    return {"train": (_written(0), _written(0))}, {}


def one_count(shard: Any) -> dict[str, int]:
    return {shard[0]: 1}


def add_counts(earlier: dict[str, int], later: dict[str, int]) -> dict[str, int]:
    return {name: count + later[name] for name, count in earlier.items()}


ANSWERS: dict[Any, Callable[[Any], Any]] = {
    shards._scan: scanned,
    shards._Inspect: inspected,
}
"""What simulated workers do instead of the work on real rows."""


def write_files(folder: Path, number: int) -> str:
    """Writes small CSV files; returns their pattern."""
    for file in range(number):
        Path(folder, f"part-{file:06}.csv").write_text(f"x\n{file}\n")
    return f"{folder}/part-*.csv"


def record(chosen: Sequence[spans.Span], outcome: writing.Outcome, out: str) -> None:
    """Describes the examples and writes them to ML Metadata."""
    from ml_metadata import metadata_store
    from ml_metadata.proto import metadata_store_pb2

    artifact = standard_artifacts.Examples()
    artifact.uri = out
    example_gen._describe(artifact, "pattern", chosen, outcome)
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = f"{out}/metadata.sqlite"
    store = metadata_store.MetadataStore(config)
    artifact.mlmd_artifact.type_id = store.put_artifact_type(artifact.artifact_type)
    store.put_artifacts([artifact.mlmd_artifact])


if __name__ == "__main__":
    main()
