"""`strategos validate`: reports all problems at once, without TensorFlow."""

from __future__ import annotations

import argparse

from strategos.components.errors import ExitCode
from strategos.pipeline import commands
from strategos.pipeline.checks import training
from strategos.pipeline.config import loading
from strategos.pipeline.config.problems import Repaired
from strategos.pipeline.root import names


def validate(arguments: argparse.Namespace) -> int:
    """Checks the settings; where some are invalid, the files that the others name."""
    problems = []
    try:
        found = Repaired(commands.load(arguments).config, frozenset())
    except loading.ConfigError as error:
        problems, found = error.problems, error.repaired
    if found:
        config, data = found.config, found.config.data.listing()
        more = commands.file_problems(config, data)
        if not (more or problems):  # training reads the data, and tries this machine
            more = training.check(config, data, probe=False)
        problems += [each for each in more if not found.concerns(each.key)]
    if problems:
        main = str(arguments.pipeline)
        raise loading.ConfigError(loading.in_reading_order(problems, main), main)
    print(f"{arguments.pipeline}: no problems found")
    if found and not names.is_set(found.config):
        print(
            f"note: `name` is not set. Add `name: {found.config.name}`, so that "
            "history, cache and the model in production never depend on the folder's "
            "name."
        )
    return ExitCode.DONE
