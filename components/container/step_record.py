"""The record of a step on a cluster: a file that the table of the run is made from.

KFP's API has the states of steps and no metrics, and its ML Metadata is going to be
removed. So each step has one more output, `OUTPUT`, which KFP's launcher uploads like
the others to ROOT/PIPELINE/RUN/NODE/record: root and run are enough to read it.
Vertex AI's API names the URL of the output, also for steps from its cache.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from strategos.components import events
from strategos.components.container import mounts
from strategos.components.data_files.span_checks import FILE as CHECKS
from strategos.components.evaluation.outcome import summary
from strategos.components.files import storage

Json = dict[str, Any]

OUTPUT = "record"
"""Name of the output."""
FILE = "record.json"
"""Name of the file in it."""
CONTENTS = "content"
"""Name of the folder with files of the user's code in it, of `Resolve` only."""
ARTIFACT = {
    "artifactType": {"schemaTitle": "system.Artifact", "schemaVersion": "0.0.1"}
}
"""Declares the output in a compiled pipeline."""

_FILES = {"ModelEvaluation": summary.FILE, "ExampleAnomalies": CHECKS}
_TITLE = re.compile(r"^title: (.*)$", re.MULTILINE)


def taken_from(call: Json) -> str:
    """Removes the output from a launcher's call, which TFX does not know.

    Args:
      call: The ExecutorInput; changed in place.

    Returns:
      The URL of the output; "" if the pipeline was compiled without it.
    """
    entry = call["outputs"].get("artifacts", {}).pop(OUTPUT, None)
    return entry["artifacts"][0]["uri"] if entry else ""


def write(url: str, call: Json, seen: Callable[[str], str], event_file: Path) -> None:
    """Writes the record of a step that has succeeded.

    Args:
      url: Result of `taken_from`; nothing is written for "".
      call: The ExecutorInput, with the launcher's URLs.
      seen: Returns the path or URL by which this process opens a URL.
      event_file: The step's event file.
    """
    if not url:
        return
    written = json.loads(storage.read(seen(call["outputs"]["outputFile"])))
    inputs = call.get("inputs", {})
    record = {
        "parameters": inputs.get("parameterValues", {}),
        "inputs": [each["uri"] for _, each in _artifacts(inputs)],
        "outputs": list(_outputs(call, written, seen)),
        "warnings": [
            str(each["message"]) for each in events.recorded(str(event_file), "warning")
        ],
    }
    storage.write(f"{seen(url)}/{FILE}", json.dumps(record))


def write_answer(
    url: str, answer: Json, made_from: Json, code: Mapping[str, bytes]
) -> None:
    """Writes the record of the step `Resolve`, by which equal runs are recognized.

    Args:
      url: Result of `taken_from`, not "".
      answer: Decision of the step.
      made_from: The record of the run, see `pipeline.made_from.record`.
      code: Files that the run is made from, by digest.
    """
    nothing: Json = {"inputs": [], "outputs": [], "warnings": []}
    text = json.dumps({**nothing, "answer": answer, "made_from": made_from})
    folder = mounts.Mounts().local(url)
    storage.write(f"{folder}/{FILE}", text)
    for digest, content in code.items():
        storage.write(f"{folder}/{CONTENTS}/{digest}", content)


def uris(call: Json, kind: str) -> set[str]:
    """URIs of the artifacts of a type among inputs and outputs.

    Args:
      call: The ExecutorInput, with the types of all artifacts.
      kind: Class name of the type, e.g. `Model`.
    """
    every = (*_artifacts(call.get("inputs", {})), *_artifacts(call["outputs"]))
    return {each["uri"] for _, each in every if _type(each.get("type", {})) == kind}


def _outputs(call: Json, written: Json, seen: Callable[[str], str]) -> Iterator[Json]:
    facts = dict(_artifacts(written))
    for name, artifact in _artifacts(call["outputs"]):
        described = {
            "type": _type(artifact.get("type", {})),
            "uri": artifact["uri"],
            "properties": facts.get(name, {}).get("metadata", {}),
        }
        file = _FILES.get(described["type"])
        if file:
            with contextlib.suppress(OSError, ValueError):
                text = storage.read(f"{seen(artifact['uri'])}/{file}", patient=True)
                described["content"] = json.loads(text)
        yield described


def _type(declared: Json) -> str:
    """The name of an artifact type; for TFX's types, the class name, e.g. `Model`."""
    match = _TITLE.search(declared.get("instanceSchema", ""))
    title = match[1] if match else declared.get("schemaTitle", "")
    return title.strip().removeprefix("tfx.")


def _artifacts(side: Json) -> Iterator[tuple[str, Json]]:
    for name, entry in side.get("artifacts", {}).items():
        for artifact in entry["artifacts"]:
            yield name, artifact
