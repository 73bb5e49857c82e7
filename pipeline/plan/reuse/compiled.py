"""The compiled pipelines (TFX's IR) on disk, so that each is compiled once.

The file of a pipeline is named by `caching.ir_key`. Beside it stands the request of the
last finished run, by which the next run knows whether all nodes are cached.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from strategos.components import evaluator, events, node_ids
from strategos.components.files import commit
from strategos.pipeline.plan import caching
from strategos.pipeline.plan.plan import Plan
from strategos.pipeline.root.state import make_state, state_folder

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config


class Compiler(Protocol):
    """Compiles in a process that imports TFX; the orchestrator does not."""

    def compile(
        self,
        config: Config,
        fingerprints: caching.Fingerprints,
        defaults: dict[str, Any],
        target: Path,
    ) -> None:
        """Compiles the pipeline of `config` to the file `target`.

        Args:
          config: The effective settings.
          fingerprints: From `Fingerprints.in_ir`.
          defaults: A value for each runtime parameter, used where a run gives no other.
          target: The file to write; replaced as a whole.

        Raises:
          UserError: The pipeline cannot be compiled.
        """


def read(
    config: Config, values: dict[str, Any], client: Compiler
) -> tuple[Any, caching.Fingerprints, Path]:
    """Reads the IR from disk; compiles first if anything that it depends on changed.

    Args:
      config: The effective settings.
      values: A value for each runtime parameter, by name.
      client: Compiles.

    Returns:
      The IR, the fingerprints to write into it, and its file.

    Raises:
      UserError: The pipeline cannot be compiled.
    """
    from absl import logging
    from tfx.proto.orchestration import pipeline_pb2

    fingerprints = caching.Fingerprints.of(config)
    path = _path(config, fingerprints)
    if not path.is_file():
        text = "compiling the pipeline (settings or own nodes are new)"
        events.emit("note", message=text)
        make_state(path.parent)
        client.compile(config, fingerprints.in_ir(), values, path)
    else:
        logging.info("Using the compiled pipeline %s.", path)
    ir = pipeline_pb2.Pipeline.FromString(path.read_bytes())
    _narrow(ir)
    _write_evaluator(ir, config, fingerprints)
    return ir, fingerprints, path


def is_there(config: Config, fingerprints: caching.Fingerprints) -> bool:
    """Whether nothing must be compiled.

    Args:
      config: The effective settings.
      fingerprints: Of the user's modules and schema.
    """
    return _path(config, fingerprints).is_file()


def done(config: Config, fingerprints: caching.Fingerprints) -> str:
    """The request of the last finished run of a compiled pipeline, see `Plan`.

    Args:
      config: The effective settings.
      fingerprints: Of the user's modules and schema.

    Returns:
      The request; "" if no run has finished.
    """
    path = _done(_path(config, fingerprints))
    return path.read_text() if path.is_file() else ""


def keep_done(plan: Plan) -> None:
    """Records for `done` that the run of `plan` has finished."""
    commit.write(_done(plan.compiled), plan.request)


def _narrow(ir: Any) -> None:
    """Looks up the inputs of nodes by node and run, not by pipeline as well.

    A node belongs to one pipeline, so the result is the same; but TFX would read the
    executions of all past runs for each input.
    """
    for node in ir.nodes:
        for inputs in node.pipeline_node.inputs.inputs.values():
            for channel in inputs.channels:
                queries = {each.type.name: each for each in channel.context_queries}
                if {"pipeline", "node"} <= queries.keys():
                    channel.context_queries.remove(queries["pipeline"])


def _write_evaluator(
    ir: Any, config: Config, fingerprints: caching.Fingerprints
) -> None:
    """Writes the Evaluator's settings; those of the run that compiled are there."""
    for node in (each.pipeline_node for each in ir.nodes):
        if config.evaluator and node.node_info.id == node_ids.EVALUATOR:
            section = caching.evaluator_section(config, fingerprints)
            value = node.parameters.parameters[evaluator.SETTINGS].field_value
            read = config.label, config.weight or ""
            value.string_value = evaluator.settings_text(section, *read)


def _path(config: Config, fingerprints: caching.Fingerprints) -> Path:
    key = caching.ir_key(config, fingerprints)
    return state_folder(config.run.root) / "ir" / f"{key}.pb"


def _done(compiled: Path) -> Path:
    return compiled.with_suffix(".done")
