"""`strategos debug`: finds rows, runs one step on them, and prints its tensors."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from strategos.components import node_ids, worker_process
from strategos.components.errors import ExitCode, required
from strategos.components.user_code import fingerprint
from strategos.components.wording import counted
from strategos.pipeline import commands

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.history.transformed import Transformed


def debug(arguments: argparse.Namespace) -> int:
    """`strategos debug`: runs one step eagerly, so that `breakpoint()` works.

    The rows are those of Transform's last output under the root. The pipeline is first
    run up to Transform if there is none, or if the settings, the schema or the
    preprocessing have changed since.

    Args:
      arguments: The parsed command line.

    Raises:
      UserError: The step or the run up to Transform fails.
      KeyboardInterrupt: The user has left the debugger.
    """
    from strategos.pipeline.debugging import report
    from strategos.pipeline.history import transformed
    from strategos.pipeline.run import preflight
    from strategos.pipeline.view import quiet

    config = commands.load(arguments).config
    preflight.reject(config, config.data.listing())
    output = transformed.last(config)
    if output is None or _changed_since(arguments, config, output):
        settings = arguments.pipeline, arguments.overlay, arguments.set
        code = commands.run_to(node_ids.TRANSFORM, *settings).exit_code
        if code != ExitCode.DONE:
            return code
        output = required(transformed.last(config))
    keras = worker_process.tensorflow(config.trainer.keras)
    os.environ.update(quiet.environment() | keras)
    with transformed.local(output) as folders:
        spec = transformed.worker_spec(config, folders)
        rows = min(arguments.rows, spec.batch_size)
        print(
            f"importing TensorFlow; then step {arguments.step:,} on "
            f"{counted(rows, 'row')}, on one device, eagerly",
            file=sys.stderr,
            flush=True,
        )
        quiet.hush()
        from strategos.components.trainer.run import one_step

        one_step.run(spec, rows=rows, step=arguments.step, show=report.show)
    return ExitCode.DONE


def _changed_since(
    arguments: argparse.Namespace, config: Config, output: Transformed
) -> bool:
    """Whether a file that Transform depends on is newer than its last output."""
    files = [Path(each) for each in (arguments.pipeline, *arguments.overlay)]
    members = fingerprint.members(str(config.folder), config.transform.module)
    files += [path for path in members.values() if path.suffix == ".py"]
    files += [Path(each) for each in [config.schema_.file] if each]
    return any(time > output.at for time in _times(files))


def _times(files: list[Path]) -> Iterator[float]:
    return (path.stat().st_mtime for path in files if path.exists())
