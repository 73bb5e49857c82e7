"""Makes the data of a run that do not exist yet: by a function, or from a database."""

from __future__ import annotations

import subprocess
import sys

from strategos.components import processes, worker_process
from strategos.components.data_files.listing import Listing
from strategos.components.data_files.queries import snapshots
from strategos.components.errors import BadInputError, UserError, required
from strategos.pipeline.checks import files as file_checks
from strategos.pipeline.config.problems import ConfigError
from strategos.pipeline.config.sections import Config
from strategos.pipeline.runners import environment
from strategos.pipeline.view import quiet

_PREPARE = """
import sys
from strategos.components import worker_process
from strategos.components.user_code import modules

worker_process.end_with_input()
modules.function(*sys.argv[1:4])(sys.argv[1])
"""


def prepare_data(config: Config, data: Listing) -> None:
    """Makes missing data by `data.prepare` or `data.query`, if one is set.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.

    Raises:
      BadInputError: The function or the query failed, or made no file that matches the
        pattern, or data without a column that the settings name.
    """
    if config.data.query:
        if not _ask(config, data):
            return
    elif not config.data.prepare or not data.is_empty:
        return
    else:
        _call(config, config.data.prepare)
    # `data.found` raises if nothing was made; `check_data` would not.
    problems = file_checks.check_data(config, data) if data.found else []
    if problems:
        raise ConfigError(problems, str(config.path))


def _ask(config: Config, data: Listing) -> bool:
    """Asks `data.query` for missing spans; returns whether there were any."""

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    quiet.hide_warnings()  # of BigQuery's packages
    query = required(config.data.query).snapshots(config.data.examples)
    try:
        written = snapshots.bring(query, tell)
    except UserError as error:
        raise config.located(error) from error
    if written:
        data.forget()
    return bool(written)


def _call(config: Config, name: str) -> None:
    """Calls the workload's function `data.prepare`."""
    module, _, function = name.partition(":")
    command = [sys.executable, "-W", "ignore", "-c", _PREPARE]
    process = subprocess.Popen(
        [*command, str(config.folder), module, function or "prepare"],
        stdin=subprocess.PIPE,  # never written to: it closes when this process ends
        env={**environment.without_password(), **worker_process.HASH_SEED},
        start_new_session=True,
    )
    try:
        process.wait()
    finally:
        processes.end_session(process)
    if process.returncode:
        raise BadInputError(
            f"{name} failed (see above), so no data exist at {config.data.examples}",
            key="data.prepare",
            place=config.where("data.prepare"),
        )
