"""`strategos report`: writes the report of a run, and opens it."""

from __future__ import annotations

import argparse
import webbrowser

from strategos.components.errors import ExitCode
from strategos.pipeline.view import streams


def report(arguments: argparse.Namespace) -> int:
    """`strategos report [RUN] [--compare RUN2]`: prints the path of the page.

    Raises:
      UserError: No such run exists, or the page cannot be written.
      BadInputError: The runs cannot be compared, or vl-convert is missing.
    """
    from strategos.pipeline.history import roots
    from strategos.pipeline.report import writing

    run_id, pipeline = roots.run_and_pipeline("report", arguments.run_or_pipeline)
    history = roots.open_history(pipeline, arguments.root)
    written = writing.write(
        history.store,
        run_id,
        to=arguments.output,
        redact=arguments.redact,
        compare=arguments.compare,
        without_scripts=arguments.static,
    )
    print(written)
    if arguments.open and not webbrowser.open(written.as_uri()):
        streams.warn(f"strategos: no browser was found here; open {written} yourself")
    return ExitCode.DONE
