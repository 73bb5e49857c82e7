"""`strategos models`, `canary`, `rollback`: a model's pushed versions."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from strategos.components.errors import BadInputError, ExitCode, Place, required
from strategos.components.files import filesystems
from strategos.components.push_targets import targets
from strategos.pipeline import commands
from strategos.pipeline.config import MAIN_FILE
from strategos.pipeline.history import contexts, roots
from strategos.pipeline.history import models as history
from strategos.pipeline.history.store import NoRunsError, Store

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config

_VERBS = ("approve", "veto")


def models(arguments: argparse.Namespace) -> int:
    """`strategos models [approve|veto VERSION]`.

    Without a verb, lists the versions in `pusher.to`, newest first, after one that
    waits.
    """
    verb, version = _words(arguments)
    if verb:
        return _decide(arguments, verb, version)
    config = pushing(arguments)
    store, pusher = store_of(config), required(config.pusher)
    waiting = history.canary(store, pusher.to, pusher.canary)
    listed = history.versions(store, pusher.to)
    listed = [waiting, *listed] if waiting else listed
    if arguments.json:
        print(json.dumps([dataclasses.asdict(each) for each in listed], indent=2))
        return ExitCode.DONE
    from strategos.pipeline.view import models as view

    view.show(listed, pusher.to)
    return ExitCode.DONE


def _words(arguments: argparse.Namespace) -> tuple[str, int]:
    """The verb and the version among the words after `models`; sets the pipeline.

    Raises:
      BadInputError: The words are not of this form.
    """
    words, pipeline = roots.pipeline_among([arguments.pipeline, *arguments.decision])
    if words and words[0] not in _VERBS and len(words) == 1 and pipeline == MAIN_FILE:
        words, pipeline = [], words[0]  # a YAML of another name
    arguments.pipeline = pipeline or MAIN_FILE
    verb, version = [*words, "", ""][:2]
    if words and not (len(words) == 2 and verb in _VERBS and version.isdecimal()):
        raise BadInputError(
            f"strategos models: received {' '.join(words)!r}. For all versions: "
            "strategos models [PIPELINE_YAML]. To decide on the one that waits: "
            "strategos models approve|veto VERSION [PIPELINE_YAML]."
        )
    return verb, int(version or 0)


def _decide(arguments: argparse.Namespace, verb: str, version: int) -> int:
    """Makes the version that waits for a person live, or withdraws it."""
    from strategos.pipeline.run.versions import approval

    config = pushing(arguments)
    by = arguments.by or approval.caller()
    decision = approval.Decision(version, by, arguments.reason)
    if verb == "veto":
        approval.veto(config, store_of(config), decision)
        print(f"version {decision.version} is withdrawn, vetoed by {by}")
        return ExitCode.DONE
    _, pushed = approval.approve(config, store_of(config), decision)
    print(f"version {pushed} is live: {decision.version}, approved by {by}")
    return ExitCode.DONE


def canary(arguments: argparse.Namespace) -> int:
    """Makes the canary live, or withdraws it."""
    decide = {"promote": _promote, "abort": _abort}[arguments.what]
    config = pushing(arguments)
    if required(config.pusher).approval:
        verb = {"promote": "approve", "abort": "veto"}[arguments.what]
        raise config.problem(
            "pusher.approval",
            "is set, so a person decides on the model that waits",
            remedy=f"Decide by `strategos models {verb} VERSION`.",
        )
    return decide(arguments, config)


def _promote(arguments: argparse.Namespace, config: Config) -> int:
    from strategos.pipeline.run import retrain as retraining
    from strategos.pipeline.run.versions import canary as canaries

    store, data = store_of(config), None
    if not arguments.unjudged:
        data, _ = retraining.accepted(config, config.data.listing())
    promoted, pushed, verdict = canaries.promote(config, store, data)
    judged = verdict.reason
    if verdict.span is not None:
        judged = f"on span {verdict.span}, {verdict.reason}"
    print(f"version {pushed} is live: canary {promoted.version} ({judged})")
    return ExitCode.DONE


def _abort(arguments: argparse.Namespace, config: Config) -> int:
    from strategos.pipeline.run.versions import canary as canaries

    aborted = canaries.abort(config, store_of(config))
    print(f"canary {aborted.version} is withdrawn; its data are not tried again")
    return ExitCode.DONE


def rollback(arguments: argparse.Namespace) -> int:
    """Makes an earlier version live again."""
    from strategos.pipeline.run.versions import rollback as rollbacks

    config = pushing(arguments)
    store = store_of(config)
    earlier, pushed = rollbacks.roll_back(config, store, arguments.version)
    print(f"version {pushed} is live: a copy of {earlier.version}")
    for run in contexts.running(store):
        print(f"run {run} is in progress; it does not push over this version")
    return ExitCode.DONE


def pushing(arguments: argparse.Namespace) -> Config:
    """Loads the settings, which must name a folder for pushed models.

    Raises:
      BadInputError: They name none, or one that cannot be used from here.
    """
    config = commands.load(arguments).config
    if not config.pusher:
        raise BadInputError(
            "this section is missing, so no model is pushed",
            key="pusher",
            place=Place(str(arguments.pipeline)),
            remedy="Add `pusher: {to: DIR}` and run the pipeline.",
        )
    problem = filesystems.unknown(config.pusher.to)
    if problem:
        raise config.problem("pusher.to", problem)
    return config


def store_of(config: Config) -> Store:
    """ML Metadata of the root; an empty store if only versions of other roots exist.

    E.g. a run on a cluster or on another machine pushed them; their manifests describe
    them.
    """
    try:
        return Store.of(config)
    except NoRunsError:
        folders = required(config.pusher).folders.values()
        if not any(targets.of(folder).versions() for folder in folders):
            raise
        return Store.empty(config.run.root)
