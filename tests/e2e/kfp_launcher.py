"""Runs a compiled pipeline as the launchers of two services do, on this machine.

`Launcher` is that of Kubeflow Pipelines, `VertexLauncher` that of Vertex AI.

Recorded from KFP 2.0.5: inputs are handed over with an empty type and the URL of an
object store, while their files lie in a folder of the container; outputs are uploaded
from that folder, if it exists; metadata pass through JSON. An object store holds files,
no folders. Each step has a container's view: only its own inputs are there.
"""

from __future__ import annotations

import json
import os
import posixpath
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_MODULE = """
import runpy, sys
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


class Launcher:
    """Runs of a pipeline spec; each reads what those before it have left.

    Args:
      spec: The PipelineSpec; another one may be set for later runs.
      folder: An empty folder for the object store and the containers.
      warm: A process that has imported TFX, which the steps are forks of.
      image: The folder that the image holds as `/workload`.
      s3: A client of the object store; by default, a folder is the store.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        folder: Path,
        warm: Any,
        image: Path,
        s3: Any = None,
    ):
        self.spec, self._folder, self._warm, self._image = spec, folder, warm, image
        self._store, self._run = (_S3(s3) if s3 else _Folder(folder / "store")), 0
        self.artifacts: dict[tuple[str, str], dict] = {}
        self.outputs: dict[tuple[str, str], str] = {}

    @property
    def _mount(self) -> str:
        scheme = self.spec["defaultPipelineRoot"].split(":")[0]
        return "gcs" if scheme == "gs" else scheme

    def run(self, *only: str, **parameters: Any) -> None:
        """Runs every task; fails with the output of the first that fails.

        Args:
          *only: The tasks to run; by default all.
          **parameters: Those of the run.
        """
        self._run += 1
        given = self.spec["root"]["inputDefinitions"]["parameters"]
        values = {name: each["defaultValue"] for name, each in given.items()}
        for node in self._order():
            if only and node not in only:
                continue
            self._step(node, values | parameters)

    def files(self, node: str, output: str) -> Path:
        """The folder of an output in a store that is a folder."""
        return self._store.base / _path(self.artifacts[node, output])

    def _order(self) -> Iterator[str]:
        tasks, done = dict(self.spec["root"]["dag"]["tasks"]), set()
        while tasks:
            ready = sorted(n for n, t in tasks.items() if done >= _needs(t))
            assert ready, f"a cycle of {sorted(tasks)}"
            yield ready[0]
            done.add(ready[0])
            tasks.pop(ready[0])

    def _step(self, node: str, parameters: Mapping[str, Any]) -> None:
        label = self.spec["components"][node]["executorLabel"]
        container = self.spec["deploymentSpec"]["executors"][label]["container"]
        place = self._folder / "containers" / f"{node}-{self._run}"
        call = self._call(node, parameters, place)
        self._fetch(call, place)
        words = [*container["command"], *container["args"]]
        words = [word.replace("{{$}}", json.dumps(call)) for word in words]
        words = [self._seen_here(word) for word in words]
        assert words[:2] == ["python", "-m"]
        env = container.get("env", ())
        env = {each["name"]: self._seen_here(each["value"]) for each in env}
        env["STRATEGOS_MOUNTS"] = str(place)
        self._warm.script(_MODULE, *words[2:], **env).output()
        self._publish(node, call, place)

    def _fetch(self, call: Mapping[str, Any], place: Path) -> None:
        """Copies the inputs of a step to its container."""
        for _, artifact in _artifacts(call["inputs"]):
            path = _path(artifact)
            self._store.download(path, place / self._mount / path)

    def _written(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The content of the file that the executor wrote."""
        file = Path(call["outputs"]["outputFile"])
        return json.loads(file.read_text()) if file.exists() else {}

    def _seen_here(self, text: str) -> str:
        return text.replace("/workload", str(self._image))

    def _call(
        self, node: str, parameters: Mapping[str, Any], place: Path
    ) -> dict[str, Any]:
        """The ExecutorInput of a step."""
        component = self.spec["components"][node]
        inputs = self.spec["root"]["dag"]["tasks"][node].get("inputs", {})
        produced = component.get("outputDefinitions", {})
        base = self._base(node)
        return {
            "inputs": {
                "parameterValues": {
                    name: self._value(source, parameters)
                    for name, source in inputs.get("parameters", {}).items()
                },
                "artifacts": {
                    name: {"artifacts": [self._input(source)]}
                    for name, source in inputs.get("artifacts", {}).items()
                },
            },
            "outputs": {
                "parameters": {
                    name: {"outputFile": str(place / "outputs" / name)}
                    for name in produced.get("parameters", {})
                },
                "artifacts": {
                    name: {
                        "artifacts": [
                            {
                                "type": each["artifactType"],
                                "uri": f"{base}/{name}",
                                "metadata": {},
                            }
                        ]
                    }
                    for name, each in produced.get("artifacts", {}).items()
                },
                "outputFile": str(place / "kfp_outputs" / "output_metadata.json"),
            },
        }

    def _base(self, node: str) -> str:
        """The URL of a step's outputs."""
        root, name = self.spec["defaultPipelineRoot"], self.spec["pipelineInfo"]["name"]
        return f"{root}/{name}/run-{self._run}/{node}"

    def _value(self, source: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
        match source:
            case {"componentInputParameter": name}:
                return parameters[name]
            case {"runtimeValue": {"constant": value}}:
                return value
            case {"taskOutputParameter": produced}:
                return self.outputs[
                    produced["producerTask"], produced["outputParameterKey"]
                ]
        raise AssertionError(source)

    def _input(self, source: Mapping[str, Any]) -> dict[str, Any]:
        produced = source["taskOutputArtifact"]
        key = produced["producerTask"], produced["outputArtifactKey"]
        return {**self.artifacts[key], "type": {"instanceSchema": ""}}

    def _publish(self, node: str, call: Mapping[str, Any], place: Path) -> None:
        """Takes over what the step has written."""
        written = self._written(call)
        for number, (name, artifact) in enumerate(_artifacts(call["outputs"])):
            told = dict(artifact)
            if name in written.get("artifacts", {}):
                (told,) = written["artifacts"][name]["artifacts"]
            assert told["uri"] == artifact["uri"], "files are uploaded from elsewhere"
            path = _path(artifact)
            self._store.upload(place / self._mount / path, path)
            named = {"name": f"{node}/{number}", "uri": told["uri"]}
            self.artifacts[node, name] = {**named, "metadata": told.get("metadata", {})}
        for name, output in call["outputs"]["parameters"].items():
            self.outputs[node, name] = Path(output["outputFile"]).read_text()


class VertexLauncher(Launcher):
    """Runs as the launcher of Vertex AI: it copies nothing and gives complete types.

    By its documentation, as nothing has run on the service. A container has a mount of
    the bucket in `/gcs`, which is for writing alone here.
    """

    def _fetch(self, call: Mapping[str, Any], place: Path) -> None:
        """Nothing."""

    def _call(
        self, node: str, parameters: Mapping[str, Any], place: Path
    ) -> dict[str, Any]:
        call = super()._call(node, parameters, place)
        call["outputs"]["outputFile"] = f"{self._base(node)}/executor_output.json"
        return call

    def _input(self, source: Mapping[str, Any]) -> dict[str, Any]:
        produced = source["taskOutputArtifact"]
        outputs = self.spec["components"][produced["producerTask"]]["outputDefinitions"]
        declared = outputs["artifacts"][produced["outputArtifactKey"]]["artifactType"]
        return {**super()._input(source), "type": declared}

    def _written(self, call: Mapping[str, Any]) -> dict[str, Any]:
        url = call["outputs"]["outputFile"]
        return json.loads(self._store.read(url.split("://")[1]) or "{}")


def _needs(task: Mapping[str, Any]) -> set[str]:
    inputs = task.get("inputs", {})
    sources = [*inputs.get("parameters", {}).values()]
    sources += inputs.get("artifacts", {}).values()
    produced = [each for source in sources for each in source.values()]
    tasks = {each["producerTask"] for each in produced if "producerTask" in each}
    return tasks | set(task.get("dependentTasks", ()))


def _artifacts(side: Mapping[str, Any]) -> Iterator[tuple[str, dict]]:
    for name, found in side["artifacts"].items():
        for artifact in found["artifacts"]:
            yield name, artifact


def _path(artifact: Mapping[str, Any]) -> str:
    """Bucket and key."""
    return artifact["uri"].split("://")[1]


class _Folder:
    """An object store that is a folder."""

    def __init__(self, base: Path):
        self.base = base

    def download(self, path: str, folder: Path) -> None:
        if (self.base / path).exists():
            shutil.copytree(self.base / path, folder)

    def upload(self, folder: Path, path: str) -> None:
        for file in _files(folder):
            copy = Path(self.base, path, file.relative_to(folder))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


class _S3:
    """An S3 server. As with KFP's launcher, each object below a prefix is a file."""

    def __init__(self, client: Any):
        self._client = client

    def download(self, path: str, folder: Path) -> None:
        bucket, _, prefix = path.partition("/")
        listed = self._client.list_objects_v2(Bucket=bucket, Prefix=prefix)
        for each in listed.get("Contents", ()):
            file = folder / os.path.relpath(each["Key"], prefix)
            file.parent.mkdir(parents=True, exist_ok=True)
            self._client.download_file(bucket, each["Key"], str(file))

    def read(self, path: str) -> bytes:
        """The content of an object; b"" if it is missing."""
        bucket, _, key = path.partition("/")
        if not self._client.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents"):
            return b""
        return self._client.get_object(Bucket=bucket, Key=key)["Body"].read()

    def upload(self, folder: Path, path: str) -> None:
        bucket, _, prefix = path.partition("/")
        for file in _files(folder):
            key = posixpath.normpath(f"{prefix}/{file.relative_to(folder)}")
            self._client.upload_file(str(file), bucket, key)


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder; or the file itself."""
    if folder.is_file():
        yield folder
    for parent, _, names in os.walk(folder, followlinks=True):
        yield from (Path(parent, name) for name in names)
