"""`strategos image build`: builds the images that the steps on a cluster run in."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strategos.components.errors import BadInputError, ExitCode, UserError
from strategos.components.files import temporary
from strategos.pipeline import commands

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config

_BUILDERS = ("buildah", "podman", "docker")
_OLDER, _NEWER = "3.10-slim-bookworm", "3.13-slim-trixie"
_CHECKOUT = Path(__file__).resolve().parent.parent
_SOURCES = (
    *("pyproject.toml", "uv.lock", "README.md"),
    *("src", "pipeline", "components"),
)
_IGNORED = "Dockerfile.dockerignore"


class _Image(NamedTuple):
    """An image to build: its name with tag, and the target of the Dockerfile if any."""

    name: str
    target: str | None


def image(arguments: argparse.Namespace) -> int:
    """Builds the images that the settings name, and pushes them if asked to.

    Raises:
      UserError: The pipeline cannot run on the target, nothing can build images here,
        or the build or the push failed.
    """
    config = commands.load(arguments).config
    commands.reject_target(config, arguments.target)
    builder, checkout = _builder(), _checkout()
    commands.prepare_image_data(config, arguments.target)
    context = getattr(config, arguments.target).context
    with temporary.folder() as folder:
        _prepare(Path(folder), checkout, Path(context))
        for each in _images(config, arguments.target):
            start = time.monotonic()
            _call(_build(builder, each, Path(folder), context))
            seconds = time.monotonic() - start
            print(f"{each.name}: built by {builder} in {seconds:.0f} s", flush=True)
            if arguments.push:
                _push(builder, each.name)
    return ExitCode.DONE


def _images(config: Config, target: str) -> Iterator[_Image]:
    """The steps' image, and the image of training containers if it differs."""
    steps = getattr(config, target).image
    yield _Image(steps, None)
    distribution = config.trainer.distribution
    is_vertex = distribution.launcher == "vertex"
    job = distribution.pods or (distribution.vertex if is_vertex else None)
    training = job and job.image
    if training and training != steps:
        yield _Image(training, "training")


def _builder() -> str:
    installed = [name for name in _BUILDERS if shutil.which(name)]
    if not installed:
        raise BadInputError(
            f"none of {', '.join(_BUILDERS)} is in the PATH, so no image can be built",
            remedy="Install one of them (Debian, Ubuntu: apt-get install buildah).",
        )
    return installed[0]


def _checkout() -> Path:
    if not (_CHECKOUT / "kubeflow" / "Dockerfile").is_file():
        raise BadInputError(
            "an image is built from a checkout of Strategos, but this Strategos is "
            f"installed in {_CHECKOUT} without one",
            remedy="Run `.venv/bin/strategos image build` of a checkout.",
        )
    return _CHECKOUT


def _prepare(folder: Path, checkout: Path, context: Path) -> None:
    """Copies the Dockerfile, its ignore file and Strategos' sources to `folder`.

    All builders find the ignore file beside the Dockerfile. Bytecode is left out, as it
    would change the layers each time.
    """
    shutil.copy(checkout / "kubeflow" / "Dockerfile", folder)
    ignored = (checkout / "kubeflow" / _IGNORED).read_text()
    own = context / ".dockerignore"
    if own.is_file():
        ignored += own.read_text()
    (folder / _IGNORED).write_text(ignored)
    for name in _SOURCES:
        source, target = checkout / name, folder / "strategos" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            without = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, symlinks=True, ignore=without)
        else:
            shutil.copy2(source, target)


def _build(builder: str, image: _Image, folder: Path, context: str) -> list[str]:
    python = _OLDER if sys.version_info < (3, 11) else _NEWER
    command = [builder, "build", "--file", str(folder / "Dockerfile")]
    if builder != "docker":  # which looks for it, and always caches layers
        command += ["--ignorefile", str(folder / _IGNORED), "--layers"]
    command += ["--build-context", f"strategos={folder / 'strategos'}"]
    command += ["--build-arg", f"PYTHON={python}", "--tag", image.name]
    command += ["--target", image.target] if image.target else []
    return [*command, context]


def _push(builder: str, name: str) -> None:
    try:
        _call([builder, "push", name])
    except UserError as error:
        raise UserError(
            f"{name} was built, but not pushed: {error}",
            remedy=f"If credentials are refused, `{builder} login` stores others. Then "
            "repeat this command, which does not build the same layers again.",
        ) from None
    print(f"{name}: pushed", flush=True)


def _call(command: list[str]) -> None:
    """Runs a builder, and shows its output as progress.

    Raises:
      UserError: The builder failed.
    """
    environ = {**os.environ, "DOCKER_BUILDKIT": "1"}
    done = subprocess.run(command, stdout=sys.stderr, env=environ)
    if done.returncode:
        raise UserError(
            f"`{' '.join(command[:2])}` ended with exit code {done.returncode}; the "
            "reason is above"
        )
