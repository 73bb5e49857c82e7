"""`strategos schedule`: clocks that call `strategos retrain --if-due`."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from strategos.components.errors import BadInputError, ExitCode
from strategos.components.wording import duration
from strategos.pipeline import commands, recurring_command
from strategos.pipeline.config.types import seconds
from strategos.pipeline.history import decisions
from strategos.pipeline.run import preflight

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config


def schedule(arguments: argparse.Namespace) -> int:
    """`strategos schedule …`.

    Args:
      arguments: The parsed command line.

    Returns:
      The exit code.
    """
    if arguments.what in recurring_command.ACTIONS:
        return recurring_command.schedule(arguments)
    config = commands.load(arguments).config
    if arguments.what == "export" and arguments.to == "cronjob":
        _reject_pod(config)
    else:
        preflight.reject(config, config.data.listing())
    every = seconds(arguments.every)
    if arguments.what == "export":
        print(_EXPORTS[arguments.to](config, _tick(arguments), every), end="")
        return ExitCode.DONE
    _Clock(config, _tick(arguments), every).run()
    return ExitCode.DONE


def _reject_pod(config: Config) -> None:
    """Raises a ConfigError if no pod can run the whole pipeline, with all reasons.

    A push into the pod is only reported: a pipeline may be tried without a volume.
    """
    from strategos.pipeline.checks import cluster

    preflight.raise_all(config, cluster.check_pod(config, config.data.listing()))
    for note in cluster.pod_notes(config):
        print(f"note: {note}", file=sys.stderr)


def _tick(arguments: argparse.Namespace) -> list[str]:
    """The command of one tick."""
    command = [*_program(), "retrain", os.path.abspath(arguments.pipeline)]
    for overlay in arguments.overlay:
        command += ["--overlay", os.path.abspath(overlay)]
    for setting in arguments.set:
        command += ["--set", setting]
    return [*command, "--if-due"]


def _program() -> list[str]:
    script = Path(sys.executable).with_name("strategos")
    if script.exists():
        return [str(script)]
    return [sys.executable, "-m", "strategos.pipeline.cli"]


class _Clock:
    """Calls the command again and again, until it is interrupted.

    Ticks missed during a run are not made up for: the next tick finds all new spans.

    Args:
      config: The effective settings.
      tick: The command.
      every: Seconds from the start of one tick to the start of the next.
    """

    def __init__(self, config: Config, tick: list[str], every: float):
        self._config, self._tick, self._every = config, tick, every

    def run(self) -> None:
        """Returns after Ctrl-C or SIGTERM, once the current run has ended."""
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                begun = time.monotonic()
                self._call()
                spent = time.monotonic() - begun
                missed = math.floor(spent / self._every)
                wait = (missed + 1) * self._every - spent
                self._announce(wait)
                time.sleep(wait)

    def _call(self) -> None:
        print(f"{_clock_time(time.time())}  ", end="", flush=True)
        # In its own session, so that one Ctrl-C does not count twice.
        child = subprocess.Popen(self._tick, start_new_session=True)
        try:
            code = child.wait()
        except KeyboardInterrupt:
            print("ending the current run", flush=True)
            child.terminate()
            child.wait()
            raise
        if code:
            print(f"retrain ended with exit code {code}", flush=True)

    def _announce(self, wait: float) -> None:
        text = f"next check at {_clock_time(time.time() + wait)}"
        decision = decisions.last(self._config.run.root, self._config.name)
        due = decision and decision.get("next")
        if due:
            text += f"; due by the clock at {_clock_time(due)}"
        print(text, flush=True)


def _clock_time(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))


def _fields(every: int) -> str:
    """The five fields of cron for a time between checks.

    Raises:
      BadInputError: Cron cannot call a command that often.
    """
    minutes, rest = divmod(every, 60)
    if rest or minutes not in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60):
        raise BadInputError(
            "cron cannot call a command that often",
            key="--every",
            received=duration(every),
            expected="minutes that divide an hour: 1m, 5m, 15m, 1h",
        )
    return "0 * * * *" if minutes == 60 else f"*/{minutes} * * * *"


def _cron(config: Config, tick: list[str], every: int) -> str:
    """A line of a crontab."""
    log = shlex.quote(str(config.folder / "retrain.log"))
    # In a crontab, % ends the command.
    command = shlex.join(tick).replace("%", r"\%")
    return f"{_fields(every)}  {command} >> {log} 2>&1\n"


def _cronjob(config: Config, tick: list[str], every: int) -> str:
    """A Kubernetes CronJob as YAML, for `kubectl apply -f -`."""
    import yaml

    from strategos.pipeline.plan.cluster import cronjob

    words = tick[tick.index("retrain") :]
    made = cronjob.manifest(config, words, _fields(every), every)
    return yaml.safe_dump(made, sort_keys=False, allow_unicode=True)


def _systemd(config: Config, tick: list[str], every: int) -> str:
    """A service and its timer, as one text with the names of the two files."""
    name = f"strategos-{config.name}"
    command = " ".join(_systemd_word(word) for word in tick)
    return f"""\
# /etc/systemd/system/{name}.service
[Unit]
Description=Retrain {config.name} if a run is due

[Service]
Type=oneshot
WorkingDirectory={config.folder}
ExecStart={command}
# Not blessed: recorded by the run, and no failure of the service.
SuccessExitStatus={ExitCode.STOPPED.value}

# /etc/systemd/system/{name}.timer
[Unit]
Description=Check every {every} s whether {config.name} is due

[Timer]
OnActiveSec=0
OnUnitInactiveSec={every}
AccuracySec=1

[Install]
WantedBy=timers.target
"""


def _systemd_word(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != word or " " in word else word


_EXPORTS = {"cron": _cron, "cronjob": _cronjob, "systemd": _systemd}
