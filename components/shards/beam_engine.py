"""The interface of an engine that works on data by Beam pipelines.

Usage, in a package with the entry point `prism = "package.module:Prism"` in the group
`strategos.engines`, for `run.engine: {runner: prism, settings: {…}}`:

    class Prism(BeamEngine):
        settings = PrismSettings

        def make_pipeline(self, engine: Engine) -> beam.Pipeline:
            import apache_beam as beam

            return beam.Pipeline(argv=["--runner=PrismRunner", *arguments(engine)])
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, ClassVar

from strategos.components.plugins import Registry

if TYPE_CHECKING:
    import apache_beam as beam
    from pydantic import BaseModel

    from strategos.components.shards.engine import Engine


class BeamEngine(abc.ABC):
    """A runner of Beam pipelines over shards of the data.

    Attributes:
      settings: The pydantic model of `run.engine.settings`; None for no settings.
    """

    settings: ClassVar[type[BaseModel] | None] = None

    def check(self, engine: Engine) -> None:
        """Rejects, before a run, an engine that this machine cannot use.

        Args:
          engine: The engine of the run.

        Raises:
          UserError: No pipeline can run.
        """
        del engine  # all are accepted by default

    @abc.abstractmethod
    def make_pipeline(self, engine: Engine) -> beam.Pipeline:
        """Makes a pipeline that runs at the end of its `with` block.

        Args:
          engine: The engine of the run; its `settings` come from the YAML.

        Raises:
          UserError: The runner did not start, or does not answer.
        """


ENGINES: Registry[BeamEngine] = Registry(
    "strategos.engines",
    BeamEngine,
    {
        name: f"strategos.components.shards.beam_runners:{kind}"
        for name, kind in {
            "direct": "Direct",
            "flink": "Flink",
            "spark": "JobServer",
            "portable": "JobServer",
            "dataflow": "Dataflow",
        }.items()
    },
)
"""Engines by name, the value of `run.engine.runner`."""
