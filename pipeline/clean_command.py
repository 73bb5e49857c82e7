"""`strategos clean`: removes artifacts of old runs that nothing needs any more."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from strategos.components.errors import ExitCode
from strategos.components.wording import counted, data_size
from strategos.pipeline import commands
from strategos.pipeline.config.types import seconds
from strategos.pipeline.history.store import Store
from strategos.pipeline.root import lease, lock, metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ml_metadata.proto import metadata_store_pb2 as mlmd

    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.run.cleaning import Item

_RECORD = "record of a run"


def clean(arguments: argparse.Namespace) -> int:
    """Lists artifacts and local files no longer needed; `--delete` removes them.

    Args:
      arguments: The parsed command line.

    Raises:
      BadInputError: A run is in progress.
      UserError: ML Metadata or the object store cannot be read.
    """
    from strategos.pipeline.run import cleaning, record_cleaning

    config = commands.load(arguments).config
    root = config.run.root
    if arguments.records:
        record_cleaning.check(config)
    connection = metadata.of(config)
    store = Store(connection, root=root)
    copy = None
    if not arguments.delete:
        items = _items(store, config, arguments)
    else:
        with lock.hold(root, run_id="clean"), _lease(config, connection):
            items = _items(store, config, arguments)
            cleaning.remove(store, (x for x in items if x.kind != _RECORD))
            if runs := [x.path for x in items if x.kind == _RECORD]:
                copy = record_cleaning.remove(root, runs)
    _show(items, arguments)
    if copy and not arguments.json:
        print(f"{copy} has the records as they were; remove it once all is well")
    return ExitCode.DONE


def _items(store: Store, config: Config, arguments: argparse.Namespace) -> list[Item]:
    """The items to remove; with `--records` also a `_RECORD` for each run."""
    from strategos.pipeline.run import cleaning, record_cleaning

    before = time.time() - seconds(arguments.older_than)
    serving = config.pusher.folders.values() if config.pusher else ()
    items = cleaning.find(store, arguments.keep, before, serving)
    if arguments.records:
        kept = cleaning.kept_runs(store, arguments.keep, before, serving)
        every = config.trainer.fresh_every
        runs = record_cleaning.unneeded(store, kept, every)
        items += (cleaning.Item(_RECORD, run, 0) for run in runs)
    return items


def _lease(config: Config, connection: mlmd.ConnectionConfig) -> Any:
    """Excludes runs on other machines; see `lease`."""
    after = lease.last(connection, config.name)
    return lease.hold(connection, config.name, after, "clean")


def _show(items: Sequence[Item], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json.dumps([dataclasses.asdict(item) for item in items], indent=2))
        return
    by_kind = defaultdict(list)
    for item in items:
        by_kind[item.kind].append(item.bytes)
    for kind, sizes in sorted(by_kind.items(), key=lambda pair: -sum(pair[1])):
        print(f"{kind:20} {len(sizes):6}  {data_size(sum(sizes))}")
    total = data_size(sum(item.bytes for item in items))
    if not items:
        print("nothing to remove")
    elif arguments.delete:
        print(f"removed {counted(len(items), 'item')}, {total}")
    else:
        print(f"{counted(len(items), 'item')}, {total}: --delete removes them")
