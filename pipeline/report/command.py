"""`strategos report`: writes the report of a run, and opens it."""

from __future__ import annotations

import argparse
import webbrowser

from strategos.components.errors import BadInputError, ExitCode
from strategos.pipeline.view import streams


def report(arguments: argparse.Namespace) -> int:
    """`strategos report [RUN]`: prints the path of the page.

    Raises:
      UserError: No such run exists, or the page cannot be written.
    """
    from strategos.pipeline.history import roots
    from strategos.pipeline.report import writing

    run_id, pipeline = _words(arguments.run_or_pipeline)
    history = roots.open_history(pipeline, arguments.root)
    written = writing.write(
        history.store, run_id, to=arguments.output, redact=arguments.redact
    )
    print(written)
    if arguments.open and not webbrowser.open(written.as_uri()):
        streams.warn(f"strategos: no browser was found here; open {written} yourself")
    return ExitCode.DONE


def _words(words: list[str]) -> tuple[str | None, str | None]:
    """The run and the pipeline that the arguments name."""
    pipelines = [word for word in words if word.endswith((".yaml", ".yml"))]
    runs = [word for word in words if word not in pipelines]
    if len(pipelines) > 1 or len(runs) > 1:
        raise BadInputError(
            f"strategos report: received {' '.join(words)!r}. Name one run and one "
            "pipeline at most: strategos report [RUN] [PIPELINE_YAML]."
        )
    return next(iter(runs), None), next(iter(pipelines), None)
