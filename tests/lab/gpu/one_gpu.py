"""What one GPU can show of the Trainer, where nothing else of the pipeline can run.

    python tests/lab/gpu/one_gpu.py bundle FOLDER        with Strategos installed
    python FOLDER/one_gpu.py check [--cpu] [CHECK …]     on the machine with a GPU

`bundle` copies to a folder: the transformed examples of the two example pipelines (one
month of flights, and the digits), Strategos' source, and this script with its modules.
`check` needs the packages that the Trainer's worker processes import (TensorFlow,
tf-keras, TensorFlow Transform, pyarrow, and what these need), and neither TFX nor Beam.
It prints a line for each check, and ends with exit code 1 if one has failed. With
`--cpu`, the CPU takes the place of the GPU: that shows whether the script works.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA = {"flights": ("--set", "data.spans=1"), "digits": ()}
CURVE, ROUNDED = 1e-4, 5e-2  # relative differences: of float32, of TF32 and less


class FailedError(Exception):
    """A check saw something else than it should."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """A training that has ended: facts as in `trainer.json`, weights, its reports."""

    facts: Mapping[str, Any]
    weights: list[Any]
    reports: list[str]

    @property
    def history(self) -> Mapping[str, list[float]]:
        return self.facts["history"]


class Bench:
    """Trains on the bundle's data.

    Args:
      on_cpu: Whether the CPU takes the place of the GPU.
    """

    def __init__(self, on_cpu: bool):
        self.on_cpu = on_cpu
        self.reference = functools.lru_cache(maxsize=None)(self._reference)

    def _reference(self, data: str) -> Trained:
        """The same training on the CPU, on one device."""
        return self.train(data, gpu=False)

    def train(
        self,
        data: str = "flights",
        *,
        gpu: bool = True,
        divided: bool = False,
        operation: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> Trained:
        """Trains once.

        Args:
          data: `flights` or `digits`.
          gpu: Whether a GPU is visible; never with `--cpu`.
          divided: Whether the GPU counts twice: as two logical devices of one process,
            or as one of each of two processes.
          operation: Fields of `Operation`.
          settings: Fields of `Settings`.
          hyperparameters: Values for `build_model`.
          **changes: Fields of `WorkerSpec`.
        """
        from strategos.components import events, worker_process
        from strategos.components.trainer.launchers import launch
        from strategos.components.trainer.operation import Operation
        from strategos.components.trainer.spec import Settings

        visible = "0" if gpu and not self.on_cpu else "-1"
        with tempfile.TemporaryDirectory() as folder, _environ(visible):
            spec = dataclasses.replace(
                _spec(data, folder), settings=Settings(**(settings or {})), **changes
            )
            values = {**spec.hyperparameters, **(hyperparameters or {})}
            spec = dataclasses.replace(spec, hyperparameters=values)
            events.open_sink(f"{folder}/events")
            asked = Operation(**(operation or {}))
            with worker_process.log_kept_back():
                if divided and not self.on_cpu:
                    request = {"spec": spec.to_json(), "operation": asked.to_json()}
                    how = {**worker_process.TENSORFLOW, "PYTHONPATH": _path()}
                    facts = worker_process.run(
                        "divided_gpu", request, name="trainer", env=how
                    )
                else:
                    facts = launch(spec, asked)
            told = map(json.loads, Path(folder, "events").read_text().splitlines())
            reports = [each["message"] for each in told if each["event"] == "progress"]
            return Trained(facts, _weights(spec.model_dir), reports)


@contextlib.contextmanager
def _environ(visible: str) -> Iterator[None]:
    kept = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible
    try:
        yield
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES")
        if kept is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = kept


def _path() -> str:
    return os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])


def _spec(data: str, folder: str) -> Any:
    from strategos.components.trainer.spec import WorkerSpec

    given = json.loads((HERE / data / "bundle.json").read_text())
    for name in ("model", "log"):
        os.makedirs(f"{folder}/{name}")

    def files(split: str) -> tuple[str, ...]:
        return tuple(sorted(glob.glob(f"{HERE}/{data}/examples/Split-{split}/*")))

    return WorkerSpec(
        folder=f"{HERE}/{data}/modules",
        train_files=files("train"),
        eval_files=files("eval"),
        transform_graph=f"{HERE}/{data}/transform_graph",
        schema_file=f"{HERE}/{data}/schema.pbtxt",
        model_dir=f"{folder}/model",
        log_dir=f"{folder}/log",
        checkpoint_dir=f"{folder}/checkpoints",
        seed=1,
        **given,
    )


def _weights(model_dir: str) -> list[Any]:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(f"{model_dir}/Format-Weights/weights")
    names = sorted(reader.get_variable_to_shape_map())
    return [reader.get_tensor(name) for name in names if "OBJECT_GRAPH" not in name]


def difference(one: Trained, other: Trained, *names: str) -> float:
    """The largest relative difference of two histories."""
    names = names or ("loss", "val_loss")
    pairs = [zip(one.history[n], other.history[n], strict=True) for n in names]
    return max(abs(a - b) / abs(b) for pair in pairs for a, b in pair)


def within(limit: float, trained: Trained, reference: Trained) -> str:
    """Fails if two curves differ by more than `limit`."""
    if not (off := difference(trained, reference)) <= limit:
        raise FailedError(f"the curve differs by {off:.1e}, more than {limit:g}")
    return f"{trained.facts['reason']}; the curve differs by {off:.1e}"


def equal(one: Trained, other: Trained) -> str:
    """Fails unless two trainings have the same weights to the last bit."""
    import numpy as np

    pairs = zip(one.weights, other.weights, strict=True)
    if not all(np.array_equal(a, b) for a, b in pairs):
        raise FailedError(f"weights differ; the curves by {difference(one, other):.1e}")
    return f"{len(one.weights)} weights are equal to the last bit"


def on_strategy(**distribution: Any) -> Callable[[Bench], str]:
    """Trains by a strategy on one GPU beside one device on the CPU."""
    return lambda bench: within(
        CURVE, bench.train(distribution=distribution), bench.reference("flights")
    )


def on_two(strategy: str, **distribution: Any) -> Callable[[Bench], str]:
    """Trains on a GPU that is two: by two replicas of one process, or two workers."""
    number = {"devices": 2} if strategy == "mirrored" else {"workers": 2}
    asked = {"strategy": strategy, **number, **distribution}
    return lambda bench: within(
        CURVE, bench.train(divided=True, distribution=asked), bench.reference("flights")
    )


def with_settings(limit: float, **settings: Any) -> Callable[[Bench], str]:
    """Trains with some settings beside float32; the export must answer alike."""

    def check(bench: Bench) -> str:
        trained = bench.train(settings=settings)
        last, found = trained.history["val_loss"][-1], trained.facts["evaluation"]
        if abs(found["loss"] - last) > limit * last:
            raise FailedError(
                f"the export has loss {found['loss']:.4f}, not {last:.4f}"
            )
        return within(limit, trained, bench.reference("flights"))

    return check


def tf32(bench: Bench) -> str:
    """By default, the GPU rounds products to TF32."""
    trained = bench.train(hyperparameters={"tf32": True})
    return within(ROUNDED, trained, bench.reference("flights"))


def convolutions(bench: Bench) -> str:
    """The digits, by cuDNN."""
    return within(ROUNDED, bench.train("digits"), bench.reference("digits"))


def deterministic(bench: Bench) -> str:
    """Two runs are equal to the last bit."""
    one, other = (bench.train(settings={"deterministic": True}) for _ in range(2))
    return equal(one, other)


def killed(bench: Bench) -> str:
    """A task that is killed (-9) between two checkpoints resumes to the last bit."""
    exact = {"deterministic": True}
    saves = {"checkpoint_every": "20 steps"}
    with tempfile.TemporaryDirectory() as folder:
        kill = {"kill": [f"{folder}/mark", 50]}
        undisturbed = bench.train(settings=exact, operation=saves)
        trained = bench.train(settings=exact, operation=saves, hyperparameters=kill)
    if trained.facts["restarts"] != 1:
        raise FailedError(f"there were {trained.facts['restarts']} restarts, not 1")
    return equal(trained, undisturbed)


def memory(bench: Bench) -> str:
    """A batch that needs more memory than there is ends by name."""
    from strategos.components.errors import UserError

    if bench.on_cpu:
        return "left out: the machine would use its swap space, or kill a process"
    try:
        bench.train(hyperparameters={"wide": True}, epochs=1)
    except UserError as error:
        if error.key == "trainer.batch_size" and "out of memory" in error.message:
            return error.message
        raise
    raise FailedError("a batch of 1 TB was trained")


def speed(bench: Bench) -> str:
    """A large network's examples per second, and how long it waits for rows."""
    trained = bench.train(hyperparameters={"units": 4096, "tf32": True}, epochs=8)
    shares = [re.search(r"(\d+)% waiting for input", text) for text in trained.reports]
    waits = [int(share[1]) for share in shares if share]
    text = f"{trained.facts['examples_per_second']:,.0f} examples/s"
    if waits and waits[-1] > 10:
        raise FailedError(f"{text}, and {waits[-1]} % of the time waits for input")
    return f"{text}, {waits[-1] if waits else '?'} % of the time waiting for input"


CHECKS: dict[str, Callable[[Bench], str]] = {
    "one_device": on_strategy(strategy="one_device"),
    "mirrored": on_strategy(strategy="mirrored"),
    "central_storage": on_strategy(strategy="central_storage"),
    "multi_worker_mirrored": on_strategy(strategy="multi_worker_mirrored", workers=1),
    "parameter_server": on_strategy(strategy="parameter_server", workers=1),
    "mirrored, two": on_two("mirrored", cross_device_ops="hierarchical_copy"),
    "two workers, ring": on_two(
        "multi_worker_mirrored", communication={"implementation": "ring"}
    ),
    "tf32": tf32,
    "bfloat16": with_settings(ROUNDED, mixed_precision="bfloat16"),
    "float16": with_settings(ROUNDED, mixed_precision="float16"),
    "jit_compile": with_settings(CURVE, jit_compile=True),
    "convolutions": convolutions,
    "deterministic": deterministic,
    "killed": killed,
    "memory": memory,
    "speed": speed,
}


def check(names: list[str], on_cpu: bool) -> int:
    """Prints a line for each check; returns the exit code."""
    if not on_cpu and not _finds_a_gpu():  # the CPU would pass most checks
        print("TensorFlow finds no GPU; --cpu takes the CPU for it", file=sys.stderr)
        return 1
    bench, failed = Bench(on_cpu), []
    for name in names or CHECKS:
        began = time.monotonic()
        try:
            text = CHECKS[name](bench)
        except Exception as error:  # the other checks are worth their time, too
            failed.append(name)
            text = f"FAILED: {type(error).__name__}: {error}"
        print(f"{name:22} {time.monotonic() - began:6.1f} s  {text}", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return bool(failed)


def _finds_a_gpu() -> bool:
    """Whether TensorFlow does, in a process that leaves the GPU to the trainings."""
    code = "import tensorflow as tf; print(tf.config.list_physical_devices('GPU'))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return "GPU:0" in found.stdout


def bundle(folder: Path) -> None:
    """Makes the folder for the machine with a GPU."""
    root, ignore = HERE.parents[2], shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "src" / "strategos", folder / "strategos", ignore=ignore)
    for file in (Path(__file__), HERE / "divided_gpu.py"):
        shutil.copy(file, folder)
    for name, options in DATA.items():
        with tempfile.TemporaryDirectory() as runs:
            _transform(root / "examples" / name, runs, options)
            _copy_data(Path(runs, "runs", name), folder / name)
    shutil.copy(root / "examples" / "digits" / "model.py", _modules(folder / "digits"))
    shutil.copy(HERE / "network.py", _modules(folder / "flights"))
    flights = {"module": "network", "label": "late", "batch_size": 256, "epochs": 3}
    digits = {"module": "model", "label": "label", "batch_size": 32, "epochs": 3}
    digits["hyperparameters"] = {"network": "cnn", "learning_rate": 2e-3}
    for name, given in {"flights": flights, "digits": digits}.items():
        (folder / name / "bundle.json").write_text(json.dumps(given))


def _modules(folder: Path) -> Path:
    (folder / "modules").mkdir(exist_ok=True)
    return folder / "modules"


def _transform(example: Path, folder: str, options: tuple[str, ...]) -> None:
    program = [sys.executable, "-m", "strategos.pipeline.cli", "run", "pipeline.yaml"]
    subprocess.run(
        [*program, "--to", "Transform", "--set", f"run.root={folder}/runs", *options],
        cwd=example,
        env={**os.environ, "XDG_STATE_HOME": f"{folder}/state"},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _copy_data(root: Path, target: Path) -> None:
    (examples,) = root.glob("Transform/transformed_examples/*")
    (graph,) = root.glob("Transform/transform_graph/*")
    (schema,) = root.glob("*SchemaGen/schema/*/*")
    shutil.copytree(examples, target / "examples")
    shutil.copytree(graph, target / "transform_graph")
    shutil.copy(schema, target / "schema.pbtxt")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("bundle").add_argument("folder", type=Path)
    asked = commands.add_parser("check")
    asked.add_argument("--cpu", action="store_true", help="the CPU instead of the GPU")
    asked.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    arguments = parser.parse_args()
    if arguments.command == "bundle":
        bundle(arguments.folder)
        return 0
    if unknown := set(arguments.checks) - set(CHECKS):
        parser.error(f"no such check: {', '.join(sorted(unknown))}")
    sys.path.insert(0, str(HERE))
    os.environ["PYTHONPATH"] = _path()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return check(arguments.checks, arguments.cpu)


if __name__ == "__main__":
    sys.exit(main())
