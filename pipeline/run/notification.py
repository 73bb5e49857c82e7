"""Tells a program or a web server how a run ended.

That it cannot be told is reported and changes nothing: the run has ended, and the model
is pushed or not.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from strategos.components import processes
from strategos.components.errors import first_line
from strategos.components.wording import first
from strategos.pipeline.config.operating import (
    PLACEHOLDER,
    WEBHOOK_VARIABLE,
    with_texts,
)
from strategos.pipeline.config.sections import required
from strategos.pipeline.view.terminal import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strategos.components.errors import UserError
    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.history.runs import Run

_ENDS = {
    "blessed": "success",
    "finished": "success",
    "not blessed": "not_blessed",
    "stopped": "not_blessed",
    "failed": "failure",
}
_LINES = 5  # of the output of a program that failed


def problems(config: Config) -> Iterator[UserError]:
    """Yields a problem if this machine cannot tell anyone as configured.

    Args:
      config: The effective settings.
    """
    settings = config.notify
    if settings is None:
        return
    if settings.command and not _program(config):
        yield config.problem(
            "notify.command",
            "and there is no such program",
            received=settings.command[0],
            remedy="Name a program on PATH, or one in the folder of the YAML with "
            "`./` before its name; make it executable.",
        )
    url = os.environ.get(WEBHOOK_VARIABLE)
    if settings.webhook and not (url and _is_web_address(url)):
        what = "has no URL of the form http://… or https://…" if url else "is not set"
        yield config.problem(
            "notify.webhook",
            f"the environment variable {WEBHOOK_VARIABLE} {what}",
            remedy="Set it to the URL.",
        )


def _program(config: Config) -> str | None:
    name = required(config.notify).command[0]
    return shutil.which(os.path.join(config.folder, name) if "/" in name else name)


def _is_web_address(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # raised for a port that is no number
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url
    return parts.scheme in ("http", "https") and has_host and is_plain


def notify(config: Config, run: Run) -> None:
    """Tells how a run ended, if `notify.on` has such an end.

    Args:
      config: The effective settings, with `notify`.
      run: The run.
    """
    settings = required(config.notify)
    if _ENDS.get(run.outcome) not in settings.on:
        return
    message = message_of(run)
    if settings.command:
        _report("command", lambda: _call(config, _encoded(message)))
    if settings.webhook:
        body = message if settings.template is None else filled(settings.template, run)
        _report("webhook", lambda: _post(_encoded(body), config))


def message_of(run: Run) -> dict[str, Any]:
    """What is told, as JSON-able values.

    Args:
      run: The run.
    """
    pushed = run.pushed[0] if run.pushed else None
    return {
        "pipeline": run.pipeline,
        "run_id": run.run_id,
        "outcome": run.outcome,
        "reason": run.reason,
        "error": run.cause,
        "metrics": run.metrics,
        "pushed": pushed if not run.slot else None,
        "canary": pushed if run.slot else None,
        "log": run.log,
    }


def filled(template: dict[str, Any], run: Run) -> dict[str, Any]:
    """Fills in `notify.template`.

    Args:
      template: The template; its placeholders are known.
      run: The run. Values that it lacks are empty texts.
    """
    values = message_of(run)
    metrics = (f"{name} {number(value)}" for name, value in run.metrics.items())
    texts = {
        **{name: str("" if value is None else value) for name, value in values.items()},
        "metrics": ", ".join(metrics),
    }
    return with_texts(
        template, lambda text: PLACEHOLDER.sub(lambda found: texts[found[1]], text)
    )


def _encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()


def _report(key: str, tell: Callable[[], str]) -> None:
    problem = tell()
    if problem:
        print(f"strategos: notify.{key}: {problem}", file=sys.stderr)


def _call(config: Config, message: bytes) -> str:
    """Calls `notify.command`; returns what went wrong, or ""."""
    settings = required(config.notify)
    try:
        process = subprocess.Popen(
            settings.command,
            cwd=config.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return f"{settings.command[0]} cannot be started: {error.strerror}"
    try:
        output, _ = process.communicate(message, timeout=settings.timeout_seconds)
    except subprocess.TimeoutExpired:
        return f"{settings.command[0]} did not end within {settings.timeout}"
    finally:
        processes.end_session(process)
    if not process.returncode:
        return ""
    lines = output.decode(errors="replace").strip().splitlines()
    told = "\n".join([f"    {line}" for line in first(lines, _LINES)])
    code = process.returncode
    return f"{settings.command[0]} ended with exit code {code}\n{told}".rstrip()


def _post(message: bytes, config: Config) -> str:
    """Sends the message; returns what went wrong, or "".

    A time-out of the socket alone would start again with each byte of an answer.
    """
    settings = required(config.notify)
    answers: list[str] = []
    thread = threading.Thread(
        target=lambda: answers.append(_answer(message, settings.timeout_seconds)),
        daemon=True,
    )
    thread.start()
    thread.join(settings.timeout_seconds)
    if answers:
        return answers[0]
    return f"the server of {WEBHOOK_VARIABLE} did not answer within {settings.timeout}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes an error of a redirect, which would be followed without the message."""

    def redirect_request(self, *_: Any) -> None:
        """See `urllib`."""


def _answer(message: bytes, seconds: float) -> str:
    """Sends the message; returns what went wrong, or "". The URL is a secret."""
    request = urllib.request.Request(
        os.environ[WEBHOOK_VARIABLE],
        data=message,
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=seconds):
            return ""
    except urllib.error.HTTPError as error:
        return f"the server answered {error.code} {error.reason}"
    except OSError as error:
        reason = getattr(error, "reason", error)
        return f"the server of {WEBHOOK_VARIABLE} cannot be reached: {reason}"
    except http.client.HTTPException as error:
        return (
            f"the server of {WEBHOOK_VARIABLE} does not speak HTTP: {first_line(error)}"
        )
