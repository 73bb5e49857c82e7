"""Measures the latency of an exported model beside that of its bare Keras model.

    python benchmarks/serving.py --calls 2000

Trains the flights on one month, and a table of 40 text columns with a vocabulary each,
then calls the SavedModel in this process as a server does: `serving_default` with
serialized examples, `predict` with raw columns as tensors. The bare model is the same
network alone, saved by TensorFlow; it takes the transformed features, and so does not
parse or transform. `REST` and `gRPC` are requests to `strategos serve`, in a process of
its own, with the examples as `serving_default` takes them, over one connection. Prints
p50 and p99 in milliseconds, and p50 by that of the bare model. Sides take turns, call
by call, so that other work on the machine meets all.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np

from strategos.components import exported

ROOT = Path(__file__).parents[1]
BARE = "bare"
BATCHES = (1, 100)
COLUMNS, DISTINCT, ROWS = 40, 50, 5000

Call = Callable[[], Any]

# Saves the network alone whenever it is built; its weights do not matter for latency.
SAVING_MODEL = """
import tensorflow as tf
from network import build_model as build_network

def build_model(context):
    model = build_network(context)
    tf.saved_model.save(model, {folder!r})
    return model
"""

WIDE_YAML = """
name: wide
label: y
data: {examples: data/*.csv}
transform: {module: preprocessing}
trainer: {module: model, batch_size: 256, epochs: 1}
evaluator: {task: binary, metrics: [auc]}
"""

WIDE_PREPROCESSING = """
import tensorflow_transform as tft

def preprocessing_fn(inputs):
    outputs = {"y": inputs.pop("y")}
    for name, text in inputs.items():
        outputs[name] = tft.compute_and_apply_vocabulary(
            text, num_oov_buckets=1, vocab_filename=name
        )
    return outputs
"""

WIDE_NETWORK = """
import tensorflow as tf

def build_model(context):
    inputs = context.inputs()
    parts = []
    for name, value in inputs.items():
        size = context.vocabulary_size(name) + 1
        vector = tf.keras.layers.Embedding(size, 4)(value)
        parts.append(tf.keras.layers.Flatten()(vector))
    hidden = tf.keras.layers.Concatenate()(parts)
    hidden = tf.keras.layers.Dense(64, activation="relu")(hidden)
    answer = tf.keras.layers.Dense(1, activation="sigmoid")(hidden)
    model = tf.keras.Model(inputs, answer)
    model.compile(optimizer="adam", loss="binary_crossentropy")
    return model
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000)
    arguments = parser.parse_args()
    print("| model | rows | call | p50 ms | p99 ms | p50 x bare |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, write in {"40 vocabularies": wide, "flights": flights}.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = write(Path(scratch))
            (folder / "model.py").rename(folder / "network.py")
            saving = SAVING_MODEL.format(folder=f"{scratch}/{BARE}")
            (folder / "model.py").write_text(saving)
            for rows in BATCHES:
                report(
                    name, rows, measure(Path(scratch), folder, rows, arguments.calls)
                )


def flights(scratch: Path) -> Path:
    """The workload of the flights with the data of January."""
    folder = scratch / "examples" / "flights"
    original = ROOT / "examples" / "flights"
    ignored = shutil.ignore_patterns("data", "runs", "serving", "__pycache__")
    shutil.copytree(original, folder, ignore=ignored)
    shutil.copytree(ROOT / "schemas", scratch / "schemas")
    settings = (folder / "pipeline.yaml").read_text().replace("{SPAN}", "01")
    (folder / "pipeline.yaml").write_text(settings)
    return folder


def wide(scratch: Path) -> Path:
    """A workload of many text columns."""
    folder = scratch / "wide"
    (folder / "data").mkdir(parents=True)
    draw = np.random.default_rng(1)
    cells = draw.integers(DISTINCT, size=(ROWS, COLUMNS))
    labels = cells[:, :1] < DISTINCT // 2
    lines = [",".join([f"c{number}" for number in range(COLUMNS)] + ["y"])]
    for row, (label,) in zip(cells, labels, strict=True):
        lines.append(",".join([f"w{cell}" for cell in row] + [str(int(label))]))
    (folder / "data" / "rows.csv").write_text("\n".join([*lines, ""]))
    (folder / "pipeline.yaml").write_text(WIDE_YAML)
    (folder / "preprocessing.py").write_text(WIDE_PREPROCESSING)
    (folder / "model.py").write_text(WIDE_NETWORK)
    return folder


def measure(
    scratch: Path, folder: Path, rows: int, calls: int
) -> dict[str, tuple[float, float]]:
    """p50 and p99 in milliseconds of each signature, and of the bare model."""
    import tensorflow as tf

    train(folder, scratch)
    (written,) = folder.rglob(f"{exported.SERVING_DIR}/{exported.SAVED_MODEL}")
    (records,) = folder.rglob("ExampleGen/**/Split-eval/*.gz")
    served = tf.saved_model.load(str(written.parent)).signatures
    bare = tf.saved_model.load(str(scratch / BARE)).signatures[exported.SERVE]
    dataset = tf.data.TFRecordDataset(str(records), "GZIP").batch(rows)
    examples = next(iter(dataset))
    features = served[exported.TRANSFORM](examples)
    needed = {name: features[name] for name in bare.structured_input_signature[1]}
    raw = raw_columns(examples, served[exported.PREDICT].structured_input_signature[1])
    with serving(written.parent) as (rest, rpc):
        return latencies(
            {
                BARE: lambda: fetched(bare(**needed)),
                exported.SERVE: lambda: fetched(served[exported.SERVE](examples)),
                exported.PREDICT: lambda: fetched(served[exported.PREDICT](**raw)),
                "REST": rest_call(rest, examples.numpy()),
                "gRPC": rpc_call(rpc, examples),
            },
            calls,
        )


def fetched(outputs: Mapping[str, Any]) -> None:
    for output in outputs.values():
        output.numpy()


@contextlib.contextmanager
def serving(model: Path) -> Iterator[tuple[int, int]]:
    """Runs `strategos serve`; yields the ports of REST and gRPC."""
    command = [Path(sys.executable).with_name("strategos"), "serve", "--model", model]
    process = subprocess.Popen(
        [*command, "--port", "0", "--grpc-port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    try:
        found = [re.search(r"://[^/]+:(\d+)", process.stdout.readline()) for _ in "12"]
        rest, rpc = (int(each[1]) for each in found if each)
        yield rest, rpc
    finally:
        process.terminate()
        process.wait()


def rest_call(port: int, examples: Sequence[bytes]) -> Call:
    """A call of `serving_default` by REST."""
    instances = [{"b64": base64.b64encode(each).decode()} for each in examples]
    connection = http.client.HTTPConnection("127.0.0.1", port)
    path = f"/v1/models/{exported.SERVING_DIR}:predict"

    def call() -> None:
        connection.request("POST", path, json.dumps({"instances": instances}))
        answer = connection.getresponse()
        assert json.loads(answer.read())["predictions"], answer.status

    return call


def rpc_call(port: int, examples: Any) -> Call:
    """A call of `serving_default` by gRPC."""
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def call() -> None:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = exported.SERVING_DIR
        request.inputs["examples"].CopyFrom(tf.make_tensor_proto(examples))
        for output in stub.Predict(request).outputs.values():
            tf.make_ndarray(output)

    return call


def train(folder: Path, scratch: Path) -> None:
    """Trains the workload once; a later call finds the nodes done."""
    if (scratch / BARE).exists():
        return
    command = [Path(sys.executable).with_name("strategos"), "run", "--to", "Trainer"]
    subprocess.run(
        [*command, folder / "pipeline.yaml"],
        env={**os.environ, "XDG_STATE_HOME": str(scratch / "state")},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def raw_columns(examples: Any, specs: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of serialized examples as `predict` takes them."""
    import tensorflow as tf

    missing = {tf.string: "", tf.int64: tf.int64.min, tf.float32: float("nan")}
    columns = {name: tf.io.RaggedFeature(spec.dtype) for name, spec in specs.items()}
    parsed = tf.io.parse_example(examples, columns)
    raw = {}
    for name, spec in specs.items():
        shape = [examples.shape[0], *(size or 1 for size in spec.shape[1:])]
        raw[name] = parsed[name].to_tensor(missing[spec.dtype], shape)
    return raw


def latencies(sides: Mapping[str, Call], calls: int) -> dict[str, tuple[float, float]]:
    """p50 and p99 in milliseconds of each side."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-calls // 10, calls):  # the first are not counted
        for name, call in sides.items():
            started = time.perf_counter()
            call()
            if number >= 0:
                taken[name].append(1000 * (time.perf_counter() - started))
    return {
        name: (float(np.percentile(each, 50)), float(np.percentile(each, 99)))
        for name, each in taken.items()
    }


def report(model: str, rows: int, found: Mapping[str, tuple[float, float]]) -> None:
    for name, (half, most) in found.items():
        ratio = half / found[BARE][0]
        print(f"| {model} | {rows} | {name} | {half:.2f} | {most:.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
