"""Notifies a program or a web server of the end of a run.

A failed notification is reported and changes nothing: the run has ended, and its model
was pushed or not.
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
from strategos.components.errors import UserError, first_line, required
from strategos.components.plugins.notification import Notification, Recipient
from strategos.components.wording import first
from strategos.pipeline.config.operating import (
    NOTIFICATIONS,
    PLACEHOLDER,
    WEBHOOK_VARIABLE,
    with_texts,
)
from strategos.pipeline.view.terminal import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
_GRACE_SECONDS = 60  # for ending a program that has not ended by itself


def _recipients(config: Config) -> Iterator[tuple[str, str, Recipient]]:
    """Yields (key, name in `NOTIFICATIONS`, settings) of each notification."""
    settings = config.notify
    if settings is None:
        return

    def recipient(options: Mapping[str, Any]) -> Recipient:
        return Recipient(options, config.folder, settings.timeout_seconds)

    if settings.command:
        yield "command", "command", recipient({"command": settings.command})
    if settings.webhook:
        yield "webhook", "webhook", recipient({"template": settings.template})
    for name, options in settings.plugins.items():
        yield f"plugins.{name}", name, recipient(options)


def problems(config: Config) -> Iterator[UserError]:
    """Yields a problem for each notification that this machine cannot send.

    Args:
      config: The effective settings.
    """
    for key, name, to in _recipients(config):
        try:
            NOTIFICATIONS[name].check(to)
        except UserError as error:
            yield config.located(error, f"notify.{key}")


def notify(config: Config, run: Run) -> None:
    """Sends the notifications of a run's end, if `notify.on` has its outcome.

    Args:
      config: The effective settings, with `notify`.
      run: The run.
    """
    if _ENDS.get(run.outcome) not in required(config.notify).on:
        return
    message = message_of(run)
    for key, name, to in _recipients(config):
        problem = _problem_within(to.timeout, NOTIFICATIONS[name], message, to)
        if problem:
            print(f"strategos: notify.{key}: {problem}", file=sys.stderr)


def _problem_within(
    limit: float, sender: Notification, message: dict[str, Any], to: Recipient
) -> str:
    """Sends a message; returns the error, or "".

    A thread limits the whole time: a socket's time-out starts again with each byte of
    an answer.
    """
    outcomes: list[str] = []

    def send() -> None:
        try:
            sender.send(message, to)
            outcomes.append("")
        except Exception as error:  # the run has ended, however this goes
            outcomes.append(str(error) or type(error).__name__)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(limit + (_GRACE_SECONDS if isinstance(sender, Command) else 0))
    if outcomes:
        return outcomes[0]
    is_web = isinstance(sender, Webhook)
    who = f"the server of {WEBHOOK_VARIABLE}" if is_web else "the plug-in"
    return f"{who} did not answer within {limit:g}s"


def message_of(run: Run) -> dict[str, Any]:
    """The message about a run, as JSON-able values.

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


def filled(template: dict[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """Fills in `notify.template`.

    Args:
      template: The template; its placeholders are known.
      message: From `message_of`. Values that it lacks are empty texts.
    """
    measured = (f"{name} {number(value)}" for name, value in message["metrics"].items())
    texts = {
        **{key: str("" if value is None else value) for key, value in message.items()},
        "metrics": ", ".join(measured),
    }
    return with_texts(
        template, lambda text: PLACEHOLDER.sub(lambda match: texts[match[1]], text)
    )


class Command(Notification):
    """`notify.command`: a program; processes that it started are ended with it."""

    def check(self, to: Recipient) -> None:
        """See `Notification`."""
        if not _program(to):
            raise UserError(
                f"program {to.settings['command'][0]!r} not found",
                remedy="Name a program on PATH, or one in the folder of the YAML with "
                "`./` before its name; make it executable.",
            )

    def send(self, message: Mapping[str, Any], to: Recipient) -> None:
        """See `Notification`: the message is the program's standard input."""
        command = to.settings["command"]
        try:
            process = subprocess.Popen(
                command,
                cwd=to.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(
                f"{command[0]} cannot be started: {error.strerror}"
            ) from None
        try:
            output, _ = process.communicate(_encoded(message), timeout=to.timeout)
        except subprocess.TimeoutExpired:
            raise UserError(
                f"{command[0]} did not end within {to.timeout:g}s"
            ) from None
        finally:
            processes.end_session(process)
        if process.returncode:
            lines = output.decode(errors="replace").strip().splitlines()
            told = "\n".join([f"    {line}" for line in first(lines, _LINES)])
            ending = f"ended with exit code {process.returncode}"
            raise UserError(f"{command[0]} {ending}\n{told}".rstrip())


class Webhook(Notification):
    """`notify.webhook`: a web server. Its URL is a secret, and in no message."""

    def check(self, to: Recipient) -> None:
        """See `Notification`."""
        url = os.environ.get(WEBHOOK_VARIABLE)
        if not (url and _is_web_address(url)):
            what = (
                "has no URL of the form http://… or https://…" if url else "is not set"
            )
            raise UserError(
                f"the environment variable {WEBHOOK_VARIABLE} {what}",
                remedy="Set it to the URL.",
            )

    def send(self, message: Mapping[str, Any], to: Recipient) -> None:
        """See `Notification`: posts the message, or the template."""
        template = to.settings["template"]
        body = message if template is None else filled(template, message)
        request = urllib.request.Request(
            os.environ[WEBHOOK_VARIABLE],
            data=_encoded(body),
            headers={"Content-Type": "application/json"},
        )
        opener = urllib.request.build_opener(_NoRedirects)
        try:
            opener.open(request, timeout=to.timeout).close()
        except urllib.error.HTTPError as error:
            problem = f"the server answered {error.code} {error.reason}"
        except OSError as error:
            reason = getattr(error, "reason", error)
            problem = f"the server of {WEBHOOK_VARIABLE} cannot be reached: {reason}"
        except http.client.HTTPException as error:
            said = first_line(error)
            problem = f"the server of {WEBHOOK_VARIABLE} does not speak HTTP: {said}"
        else:
            return
        raise UserError(problem)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Rejects redirects: urllib would follow them without the message."""

    def redirect_request(self, *_: Any) -> None:
        """See `urllib`."""


def _program(to: Recipient) -> str | None:
    name = to.settings["command"][0]
    return shutil.which(os.path.join(to.folder, name) if "/" in name else name)


def _is_web_address(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # raised for a port that is no number
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url
    return parts.scheme in ("http", "https") and has_host and is_plain


def _encoded(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode()
