"""`strategos models` and `strategos rollback`: the pushed versions of the model."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from strategos.components.errors import ExitCode
from strategos.pipeline import commands
from strategos.pipeline.history import models as history
from strategos.pipeline.history.store import Store
from strategos.pipeline.root import lock

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config


def models(arguments: argparse.Namespace) -> int:
    """Lists the versions in `pusher.to`, newest first."""
    config = commands.pushing(arguments)
    listed = history.versions(_store(config), config.pusher.to)
    if arguments.json:
        print(json.dumps([dataclasses.asdict(each) for each in listed], indent=2))
        return ExitCode.DONE
    from strategos.pipeline.view import models as view

    view.show(listed, config.pusher.to)
    return ExitCode.DONE


def rollback(arguments: argparse.Namespace) -> int:
    """Makes an earlier version live again."""
    from strategos.pipeline.run import rollback as rollbacks

    config = commands.pushing(arguments)
    store = _store(config)
    earlier, pushed = rollbacks.roll_back(config, store, arguments.version)
    print(f"version {pushed} is live: a copy of {earlier.version}")
    holder = lock.holder(config.run.root)
    if holder:
        print(
            f"run {holder.get('run_id', '?')} is in progress and may push its model; "
            "stop it if it should not"
        )
    return ExitCode.DONE


def _store(config: Config) -> Store:
    return Store(commands.connection(config), root=config.run.root)
