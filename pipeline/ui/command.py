"""`strategos ui`: serves the pages until Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import socket
import sys
import webbrowser
from typing import TYPE_CHECKING

from strategos.components.errors import BadInputError, ExitCode
from strategos.components.services import listening
from strategos.pipeline.view import streams

if TYPE_CHECKING:
    from werkzeug.serving import BaseWSGIServer

    from strategos.pipeline.ui.source import Source

VARIABLE = "STRATEGOS_UI_TOKEN"
"""The environment variable with the token."""

_SHORTEST = 16  # characters of a token


def ui(arguments: argparse.Namespace) -> int:
    """`strategos ui [PIPELINE_YAML]`.

    Args:
      arguments: The parsed command line.

    Returns:
      DONE, after Ctrl-C or SIGTERM.

    Raises:
      BadInputError: The port is taken, or other machines could connect without a token.
      UserError: The settings are invalid, or ML Metadata cannot be read.
    """
    from strategos.pipeline.history import kubeflow, roots
    from strategos.pipeline.ui.source import Source

    token = _token(arguments.host, arguments.token)
    if kubeflow.is_address(arguments.root or ""):
        raise BadInputError(
            "runs on Kubeflow are shown by Kubeflow's own pages",
            key="--root",
            received=arguments.root,
            remedy="`strategos runs` and `strategos lineage` read this address.",
        )
    place = roots.place(arguments.pipeline, arguments.root)
    print(place.line, file=sys.stderr)
    source = Source(place)
    with listening.on(arguments.host, arguments.port) as opened:
        server = _server(opened, arguments.host, source, token)
        print("reading the history", file=sys.stderr, flush=True)
        with source.reading():
            pass  # the whole history, before the first page
        address = f"http://{listening.in_url(arguments.host)}:{server.port}/"
        with contextlib.suppress(KeyboardInterrupt):
            print(address, flush=True)
            print("Ctrl-C ends it.", file=sys.stderr, flush=True)
            if arguments.open and not webbrowser.open(address):
                streams.warn(f"strategos: no browser was found here; open {address}")
            server.serve_forever()
    return ExitCode.DONE


def _token(host: str, option: str | None) -> str | None:
    """The token that browsers must have; None on loopback, unless one is set.

    Raises:
      BadInputError: The token is short, or missing where other machines can connect.
    """
    token = option or os.environ.get(VARIABLE) or None
    new = f"a new one: {secrets.token_urlsafe(18)}"
    if token and len(token) < _SHORTEST:
        raise BadInputError(
            f"the token has {len(token)} characters",
            key="--token",
            expected=f"at least {_SHORTEST} characters",
            remedy=f"Choose another, e.g. {new}",
        )
    if not token and not listening.is_loopback(host):
        raise BadInputError(
            "other machines could read the history without a token",
            key="--host",
            received=host,
            remedy=f"Set {VARIABLE} or --token, e.g. to {new}",
        )
    return token


def _server(
    opened: socket.socket, host: str, source: Source, token: str | None
) -> BaseWSGIServer:
    """A server on a socket, with a thread for each connection."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    from strategos.pipeline.ui.app import App
    from strategos.pipeline.ui.guard import Guard

    class Quiet(WSGIRequestHandler):
        """Logs nothing, and closes connections that are silent."""

        timeout = 60.0

        def log(self, type: str, message: str, *args: object) -> None:
            """Drops a line of the log."""

        def version_string(self) -> str:
            """The header `Server`."""
            return "strategos"

    port = opened.getsockname()[1]
    app = App(source, Guard(host, port, token))
    return make_server(
        host,
        port,
        app,
        threaded=True,
        request_handler=Quiet,
        fd=opened.fileno(),
    )
