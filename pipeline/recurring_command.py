"""`strategos schedule create|list|delete`: a service runs the pipeline by cron."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import zoneinfo
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strategos.components.errors import ExitCode, UserError
from strategos.components.files import temporary
from strategos.pipeline import commands, remote_command

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.remote.service import Recurring, Service

ACTIONS = ("create", "list", "delete")
"""Actions of `strategos schedule` on a service."""


def schedule(arguments: argparse.Namespace) -> int:
    """Creates, lists or deletes the schedules of the pipeline; returns the exit code.

    Raises:
      UserError: The settings do not fit the service, or the service fails.
    """
    config, target = commands.load(arguments).config, arguments.target
    if arguments.what == "create":
        return _create(config, target)
    if getattr(config, target) is None:
        commands.reject_target(config, target)
    for problem in remote_command.endpoint_problems(config, target):
        raise problem
    service = remote_command.connect(config, target)
    service.check()
    schedules = service.recurring(config.name)
    if arguments.what == "list" and arguments.json:
        print(json.dumps([dataclasses.asdict(each) for each in schedules], indent=2))
        return ExitCode.DONE
    if not schedules:
        print(f"{target} has no schedule of {config.name}")
    if schedules and arguments.what == "delete":
        _delete(config, service, schedules, "deleted ")
    for each in schedules if arguments.what == "list" else ():
        print(_line(config, each, ""))
    return ExitCode.DONE


def _create(config: Config, target: str) -> int:
    """Creates the schedule, then deletes the earlier ones of the pipeline."""
    problems = list(remote_command.endpoint_problems(config, target))
    if getattr(config, target) is None:
        commands.reject_target(config, target)
    service = remote_command.connect(config, target)
    try:
        service.cron()
    except UserError as problem:
        problems.append(problem)
    commands.reject_target(config, target, *problems)
    service.check()
    commands.prepare_image_data(config, target)
    with temporary.folder() as folder:
        file = Path(folder, "pipeline")
        commands.compile_to(config, target, file)
        before = service.recurring(config.name)
        made = service.create_recurring(file, config.name)
    _delete(config, service, before, "replaced ", _line(config, made, "created "))
    return ExitCode.DONE


def _delete(
    config: Config,
    service: Service,
    schedules: Sequence[Recurring],
    done: str,
    *lines: str,
) -> None:
    """Deletes schedules, then prints them: standard output may be closed.

    Args:
      config: The effective settings.
      service: The service.
      schedules: The schedules.
      done: Begins the line of each.
      *lines: To be printed before.
    """
    printed = list(lines)
    try:
        for each in schedules:
            service.delete_recurring(each.recurring_id)
            printed.append(_line(config, each, done))
    finally:
        print(*printed, sep="\n")


def _line(config: Config, recurring: Recurring, done: str) -> str:
    text = f"{done}{recurring.recurring_id}  {recurring.cron}"
    if done.strip() in ("deleted", "replaced"):
        return text
    if recurring.next_run is None:
        return f"{text}  {'never fires' if recurring.is_active else 'paused'}"
    zone = config.schedule.timezone if config.schedule else "UTC"
    when = datetime.datetime.fromtimestamp(recurring.next_run, zoneinfo.ZoneInfo(zone))
    return f"{text}  next run {when:%Y-%m-%d %H:%M:%S %Z}"
