"""Partial runs: the nodes to run, and the earlier run with the others' outputs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strategos.components.errors import BadInputError, Place, UserError
from strategos.components.wording import did_you_mean
from strategos.pipeline.config.nodes.order import names
from strategos.pipeline.plan import caching, tfx_adapter
from strategos.pipeline.root import recent

if TYPE_CHECKING:
    import ml_metadata

    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.plan.planning import RunOptions

_IDENTITY = ("pipeline", "target", "keys")
"""Properties of a run, recorded by `Journal`, by which a partial run finds its base."""


def problems(config: Config, flags: Mapping[str, str | None]) -> Iterator[UserError]:
    """Yields a problem for each flag with a node that the pipeline does not have.

    Args:
      config: The effective settings.
      flags: Names of nodes by flag, `--from` and `--to`; None for a flag not given.
    """
    known = names(config)
    for flag, name in flags.items():
        if name is not None and name not in known:
            yield BadInputError(
                "the pipeline has no such node",
                key=flag,
                place=Place("command line"),
                received=repr(name),
                expected=", ".join(known),
                remedy=did_you_mean(name, known),
            )


def mark(
    ir: Any,
    options: RunOptions,
    config: Config,
    store: ml_metadata.MetadataStore,
) -> dict[str, str]:
    """Marks the nodes of an IR that a partial run skips, in place.

    Args:
      ir: The compiled pipeline.
      options: Flags of this run.
      config: The effective settings.
      store: ML Metadata.

    Returns:
      The keys of the nodes with outputs taken from an earlier run, by node. An unknown
      key is replaced by one that no other run has, e.g. `Transform of run RUN_ID`.

    Raises:
      BadInputError: No node would run.
    """
    if not options.partial:
        return {}
    base, known = _last_run(config, store)
    if not tfx_adapter.mark_part(ir, options.from_node, options.to_node, base):
        raise _nothing(options, names(config))
    unknown = {name: f"{name} of run {base}" for name in tfx_adapter.reused_nodes(ir)}
    return {name: known.get(name, key) for name, key in unknown.items()}


def _nothing(options: RunOptions, order: Sequence[str]) -> BadInputError:
    """The error for a part of the pipeline without any node."""
    first, last = options.from_node, options.to_node
    return BadInputError(
        f"no node would run, since {last} takes no output of {first}, directly or "
        "through other nodes",
        key="--to",
        received=f"'{last}' with --from '{first}'",
        expected=f"{first}, or a node that takes its outputs",
        remedy=f"The nodes run in this order: {', '.join(order)}.",
    )


def _last_run(
    config: Config, store: ml_metadata.MetadataStore
) -> tuple[str | None, dict[str, str]]:
    """The last run of this pipeline for its target, and the keys of its nodes."""
    target = caching.target_key(config)
    for run in recent.runs(store):
        facts = {x: run.custom_properties[x].string_value for x in _IDENTITY}
        if facts["pipeline"] == config.name and facts["target"] in ("", target):
            return run.name, json.loads(facts["keys"] or "{}")
    return None, {}
