"""`strategos serve`: a model behind TensorFlow Serving's interfaces, until Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from strategos.components import exported
from strategos.components.errors import BadInputError, ExitCode, UserError, required
from strategos.components.files import filesystems
from strategos.components.push_targets import targets
from strategos.components.services import listening
from strategos.pipeline import models_command
from strategos.pipeline.view import quiet

if TYPE_CHECKING:
    from strategos.components.predict.serving.versions import Change, Source, Versions

_LOOK_SECONDS = 1.0  # as TensorFlow Serving
_REMOTE_LOOK_SECONDS = 10.0  # requests to an object store cost
_THREADS = 16  # requests by gRPC at a time


def serve(arguments: argparse.Namespace) -> int:
    """`strategos serve [PIPELINE_YAML]`.

    Args:
      arguments: The parsed command line.

    Returns:
      DONE, after Ctrl-C or SIGTERM.

    Raises:
      BadInputError: No model was pushed, or a port is taken.
      UserError: The settings are invalid, or the push folder cannot be read.
    """
    name, sources = _sources(arguments)
    host = arguments.host
    with listening.on(host, arguments.port) as opened:
        from strategos.components.predict.serving import rpc

        address = listening.in_url(host)
        try:
            server, port = rpc.listen(address, arguments.grpc_port, _THREADS)
        except rpc.PortError as error:
            why = "another program listens there, or it is no address of this machine"
            raise listening.problem(
                "--grpc-port", host, arguments.grpc_port, why
            ) from error
        _log(f"{name}: importing TensorFlow")
        quiet.hush()
        from strategos.components.predict.serving.http_server import Server
        from strategos.components.predict.serving.versions import Versions

        models = Versions(name, sources)
        with contextlib.suppress(KeyboardInterrupt):
            _refresh(models)
            rest = Server(opened, models, _log_call)
            rpc.start(server, models, _log_call)
            remote = any(filesystems.is_remote(x.path(0)) for x in sources.values())
            seconds = _REMOTE_LOOK_SECONDS if remote else _LOOK_SECONDS
            _follow(models, seconds)
            print(f"http://{address}:{rest.server_port}/v1/models/{name}")
            print(f"grpc://{address}:{port}", flush=True)
            if not listening.is_loopback(host):
                _log("note: other machines can send requests, without a password")
            _log("Ctrl-C ends it.")
            rest.serve_forever()
        server.stop(None)
    return ExitCode.DONE


def _sources(arguments: argparse.Namespace) -> tuple[str, dict[str, Source]]:
    """The name of the model, and where its versions are by label.

    Raises:
      BadInputError: There is no version.
    """
    from strategos.components.predict.serving.versions import CANARY, STABLE, OneModel

    sources: dict[str, Source]
    if arguments.model is not None:
        folder = Path(arguments.model)
        if (folder / exported.SAVED_MODEL).is_file():
            one = OneModel(folder)
            parts = folder.absolute().parts
            number = targets.version_of(parts[-1]) is not None
            return parts[-2 if number else -1], {STABLE: one}
        name, sources = folder.absolute().name, {STABLE: targets.of(arguments.model)}
        problem = BadInputError(
            "no SavedModel, and no folder of numbered versions of one",
            key="--model",
            received=arguments.model,
        )
    else:
        pusher = required(models_command.pushing(arguments).pusher)
        name, sources = os.path.basename(pusher.target.uri), {STABLE: pusher.target}
        if pusher.slot:
            sources[CANARY] = pusher.slot
        problem = BadInputError(
            f"no model has been pushed to {pusher.to} yet",
            key="pusher.to",
            remedy=f"Run: strategos run {arguments.pipeline}",
        )
    if all(source.newest() is None for source in sources.values()):
        raise problem
    return name, sources


def _follow(models: Versions, seconds: float) -> None:
    """Loads each new version, in a thread."""

    def look() -> None:
        while True:
            time.sleep(seconds)
            try:
                _refresh(models)
            except (OSError, UserError) as error:
                _log(f"the push folder cannot be read: {error}")

    threading.Thread(target=look, daemon=True).start()


def _refresh(models: Versions) -> None:
    for change in models.refresh():
        _log(_described(models.name, change))


def _described(name: str, change: Change) -> str:
    if change.problem:
        return f"{name}: the newest {change.label} version: {change.problem}"
    loaded = change.loaded
    if loaded is None:
        return f"{name}: no {change.label} version is left"
    what = f"{name}: version {loaded.number} is {change.label}"
    return f"{what}, loaded in {loaded.seconds:.1f} s"


def _log_call(what: str, note: str, seconds: float) -> None:
    _log(f"{what}  {1000 * seconds:.1f} ms" + f"  {note}" * bool(note))


def _log(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # one call, so that threads mix no lines
    sys.stderr.flush()
